// Messages of the folders below launch/ name fields; this replaces the fields by options.
#pragma once

#include <string>

namespace maniple {

// Fields in back quotes (`kv_memory`) become options (--kv-memory).
std::string with_option_names(std::string text);

}  // namespace maniple
