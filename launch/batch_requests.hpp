// Lines in the shape of OpenAI's batch files: {"custom_id", "method", "url", "body"}. Every field of a body
// is honoured, or accepted with the one value that changes nothing, or refused by name.
#pragma once

#include <launch/requests.hpp>

#include <nlohmann/json_fwd.hpp>

namespace maniple {

bool is_batch_request(const nlohmann::json& object);
// Fails (input), naming the line.
RequestLine parse_batch_request(const nlohmann::json& object, uint64_t number, const std::string& where);

}  // namespace maniple
