// What the requests of an input ask of the model's files: one list of checks for generate and doctor.
#pragma once

#include <launch/commands/commands.hpp>
#include <launch/input/requests.hpp>
#include <runtime/checkpoint/model_files.hpp>

#include <cstdint>
#include <string>

namespace maniple {

// A prompt of the command line as a line of JSON. Throws Error (input) unless the texts are UTF-8.
LineReader::Line prompt_line(const GenerateOptions& options);
// The lines of --in; texts become prompts or chats.
LineReader open_input(const GenerateOptions& options);

struct CheckedInput {
  uint64_t requests = 0;         // of the whole input
  uint64_t unlimited_chats = 0;  // of these: chats without max_tokens, which may fill the context
  std::string note;              // about raw text for a chat model, and --chat without effect; mostly empty
};
// Reads the whole input and rewinds it; null: the prompt of the command line. Throws Error (input) where a line is wrong, a chat finds
// no template or a bad one, or text no tokenizer.
CheckedInput check_input(const GenerateOptions& options, const ModelFiles& files, LineReader* input);

}  // namespace maniple
