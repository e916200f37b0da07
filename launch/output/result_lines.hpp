// A completion as one line of JSON, in the shape of its request.
#pragma once

#include <launch/input/requests.hpp>
#include <runtime/requests.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

#include <string>

namespace maniple {

// Without the line end. The content follows only from request, model and seed,
// so its bytes are the same on every grid. Numbers are the shortest that read
// back as the same float. The tokenizer gives the texts of tokens in logprobs.
std::string result_line(const RequestLabel& label, const FinishedRequest& completion,
                        const Tokenizer* tokenizer);

}  // namespace maniple
