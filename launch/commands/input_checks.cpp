#include <launch/commands/input_checks.hpp>
#include <launch/input/json_line.hpp>
#include <runtime/chat/chat_template.hpp>
#include <runtime/shared_model.hpp>

#include <fmt/format.h>

namespace maniple {
namespace {

InputSummary summary_of_prompt(bool chat) {
  const std::string where = "--prompt", nowhere;
  return {1, chat ? 1U : 0U, where, chat ? where : nowhere, chat ? nowhere : where};
}

bool has_chat_template(const ModelFiles& files) try {
  ChatTemplate::load(files);
  return true;
} catch (const Error&) {
  return false;
}

// prompt: the first line with raw text, or empty.
std::string note_on_prompt(const ModelFiles& files, const std::string& prompt) {
  if (prompt.empty() || !has_chat_template(files)) return {};
  return fmt::format(
      "maniple: note: {} has a chat template, but {} is raw text, which is continued as it stands\n"
      "  for an answer: --prompt TEXT --chat, or a line {{\"messages\": [{{\"role\": \"user\", "
      "\"content\": \"...\"}}]}}\n",
      files.where(), prompt);
}

// About --reasoning auto without effect; mostly empty. A format that the model has not is refused.
std::string note_on_reasoning(const GenerateOptions& options, const ModelFiles& files) {
  if (options.reasoning == "off") return {};
  if (has_tokenizer(files) && Reasoning::of(options.reasoning, read_tokenizer(files), {})) return {};
  const std::string what = fmt::format("the tokenizer of {} has no marks of thoughts", files.where());
  if (options.reasoning == "auto")
    return fmt::format("maniple: note: --reasoning auto changes nothing: {}\n", what);
  throw Error(ExitCode::input, fmt::format("{} as --reasoning {} has them", what, options.reasoning),
              "only tokens that the model has for it can say where a thought ends",
              "leave the option out, or --reasoning auto");
}

}  // namespace

LineReader::Line prompt_line(const GenerateOptions& options) {
  if (options.system) check_utf8(*options.system, "--system");
  return {1, request_of_text({1, *options.prompt, "--prompt"}, options.chat, options.system)};
}

LineReader open_input(const GenerateOptions& options) {
  if (options.system) check_utf8(*options.system, "--system");
  return LineReader(options.in, [chat = options.chat, system = options.system](const LineReader::Line& line) {
    return request_of_text(line, chat, system);
  });
}

CheckedInput check_input(const GenerateOptions& options, const ModelFiles& files, LineReader* input) {
  const InputSummary summary = input ? validate_requests(*input) : summary_of_prompt(options.chat);
  if (!summary.first_chat.empty()) ChatTemplate::load(files, options.chat_template);
  CheckedInput checked{summary.requests, options.sampling.max_tokens ? 0 : summary.unlimited_chats,
                       note_on_prompt(files, summary.first_prompt)};
  checked.note += note_on_reasoning(options, files);
  if (options.chat && input && !input->has_text())
    checked.note += fmt::format("maniple: note: --chat changes nothing: {} holds JSON lines, not prompts\n",
                                input->name());
  if (summary.first_text.empty() || has_tokenizer(files)) return checked;
  throw Error(
      ExitCode::input,
      fmt::format(
          "{}, but {} has no tokenizer.json",
          input ? fmt::format("{} {} has text", input->name(), summary.first_text) : "--prompt is text",
          files.where()),
      "such a model serves token ids only",
      R"(copy the model's tokenizer.json there, or write {"id": ..., "tokens": [...]} and stop_token_ids)");
}

}  // namespace maniple
