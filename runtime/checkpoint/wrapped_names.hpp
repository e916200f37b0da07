// Names under which multimodal wrappers store the modules of their language model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// The name in the plain model of a tensor or module: of "language_model.model.norm" it is "model.norm".
std::string plain_name(std::string_view stored);
// Every name that a tensor or module of the plain model may be stored under, its own first.
std::vector<std::string> stored_names(std::string_view plain);

}  // namespace maniple
