// Writes encoded plans and results, one per file: whole messages, and bodies alone, because the target also
// puts its input after a right header. usage: step_codec_seeds FOLDER
#include <runtime/control/step_codec.hpp>

#include <fstream>
#include <string>

using namespace maniple;

namespace {

std::vector<StepPlan> plans() {
  StepPlan admission;
  admission.step = 1;
  admission.admissions = {{2,
                           16,
                           {.temperature = 0.8F,
                            .top_k = 40,
                            .top_p = 0.9F,
                            .min_p = 0.05F,
                            .seed = 1234567890123,
                            .min_tokens = 2,
                            .stop_token_ids = {2},
                            .logprobs = 3,
                            .repetition_penalty = 1.1F,
                            .allowed_token_ids = {7, 8, 2},
                            .logit_bias = {{7, -1.5F}},
                            .bad_word_ids = {{8}, {7, 8}}},
                           {5, 6, 7}},
                          {0, 0, {}, {1}}};
  admission.sequences = {{2, {}, 20, 20, 0}, {0, {}, 3, 3, 1}};
  for (int32_t token = 0; token < 23; ++token) admission.known_tokens.push_back(token * 997);
  StepPlan steady;
  steady.step = 300;
  steady.replica = 1;
  steady.released = {3, 130};
  steady.new_blocks = {{1, {40}}, {2, {41, 42}}};
  steady.sequences = {{1}, {2}};
  steady.state_hash = 0x0123456789abcdef;
  StepPlan again;
  again.step = 2;
  again.sequences = {{2, 33, 3, 2, 3}, {0, 1, 2, 2, 0}};
  again.known_tokens = {5, 6, 7, 8};
  StepPlan stop;
  stop.step = 301;
  stop.command = Command::stop;
  return {admission, steady, again, stop};
}

StepResult result() {
  return {7,
          {1, 0, 2},
          {{11, -0.5F, 2}, {12, 0.0F, 0}, {13, -1.25F, 1}},
          {{11, -0.5F}, {9, -2.0F}, {13, -1.25F}}};
}

void write(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void write_both(const std::string& path, std::span<const std::byte> message) {
  constexpr size_t header_bytes = 6, hash_bytes = 8;
  write(path, message);
  write(path + "_body", message.subspan(header_bytes, message.size() - header_bytes - hash_bytes));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 64;
  const std::string folder = arguments[1];
  for (const StepPlan& plan : plans())
    write_both(folder + "/plan_" + std::to_string(plan.step), encode(plan));
  write_both(folder + "/result", encode(result()));
  return 0;
}
