// What a program that owns MPI may do around the library. usage: mpirun -n RANKS between DIR; it says "passed" on rank 0.
// MPI's calls that make and free handles are counted through its profiling interface: nothing may be left.
#include <maniple/llm.hpp>

#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace {

std::atomic<int> communicators = 0, groups = 0;

int rank_of(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "rank %d: %s\n", rank_of(MPI_COMM_WORLD), what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

template <typename F>
int code_of(F f) {
  try {
    f();
  } catch (const maniple::Error& error) {
    return static_cast<int>(error.code());
  }
  return 0;
}

using Texts = std::vector<std::string>;
Texts texts_of(const std::vector<maniple::Completion>& answers) {
  Texts texts;
  for (size_t i = 0; i < answers.size(); ++i) {
    check(answers[i].error.empty(), answers[i].error.c_str());
    check(answers[i].prompt == i && answers[i].index == 0, "an answer is not in its place");
    texts.push_back(answers[i].text);
  }
  return texts;
}

void tell(const maniple::Error& error) { std::fprintf(stderr, "fault: %s\n", error.what()); }
const maniple::SamplingParams drawn{.temperature = 0.8f, .seed = 7, .max_tokens = 12};
const Texts prompts{"ROMEO:", "The king", "ROMEO:"};

// The caller's own messages, on the communicator that it gave to the library.
void pass_a_message(MPI_Comm comm) {
  int size = 1, token = rank_of(comm), received = -1;
  MPI_Comm_size(comm, &size);
  MPI_Sendrecv(&token, 1, MPI_INT, (token + 1) % size, 0, &received, 1, MPI_INT, (token + size - 1) % size, 0,
               comm, MPI_STATUS_IGNORE);
  check(received == (token + size - 1) % size, "a message of the caller went elsewhere");
}

Texts of_whole_world(const char* model) {
  maniple::Llm llm(MPI_COMM_WORLD,
                   {.model = model, .dtype = "fp32", .on_fault = tell});  // copies, one a rank
  const Texts texts = texts_of(llm.generate(prompts, drawn));
  pass_a_message(MPI_COMM_WORLD);
  check(texts_of(llm.generate(prompts, drawn)) == texts, "a second call has another answer");
  if (rank_of(MPI_COMM_WORLD) == 0) check(texts[0] != texts[2], "the seed does not follow the position");
  const auto by_ids = llm.generate(
      {maniple::Prompt(std::vector<int32_t>{1, 2, 3}), maniple::Prompt(std::vector<int32_t>{-1})},
      {.seed = 3, .max_tokens = 2, .ignore_eos = true, .n = 2, .logprobs = 1, .prompt_logprobs = 0});
  const auto second = llm.generate({maniple::Prompt(std::vector<int32_t>{1, 2, 3})},
                                   {.seed = maniple::answer_seed(3, 1), .max_tokens = 2, .ignore_eos = true});
  maniple::SamplingParams greedy{.temperature = 0, .max_tokens = 30, .ignore_eos = true};
  const Texts whole = texts_of(llm.generate({maniple::Prompt("ROMEO:")}, greedy));
  greedy.stop = {"man,"};
  const Texts stopped = texts_of(llm.generate({maniple::Prompt("ROMEO:")}, greedy));
  greedy.stop.clear();
  greedy.bad_words = {"and"};
  const Texts without = texts_of(llm.generate({maniple::Prompt("ROMEO:")}, greedy));
  if (rank_of(MPI_COMM_WORLD) == 0) {
    check(
        whole[0].find("man,") != std::string::npos && stopped[0] == whole[0].substr(0, whole[0].find("man,")),
        "a text does not end before its stop string");
    check(whole[0].find(" and") != std::string::npos && without[0].find(" and") == std::string::npos,
          "a bad word is there");
    check(by_ids.size() == 4, "two answers to each prompt");
    for (size_t i = 0; i < by_ids.size(); ++i)
      check(by_ids[i].prompt == i / 2 && by_ids[i].index == i % 2, "an answer is not in its place");
    check(by_ids[0].tokens.size() == 2 && by_ids[0].scores.size() == 2, "an answer to ids");
    check(by_ids[0].finish_reason == "length" && by_ids[0].prompt_tokens == 3, "how an answer ended");
    check(by_ids[1].prompt_scores.size() == 2, "scores of a prompt");
    check(by_ids[1].tokens == second[0].tokens, "an answer is not that of a request with its seed");
    for (const size_t i : {2, 3})
      check(by_ids[i].error.find("-1") != std::string::npos && by_ids[i].tokens.empty(),
            "an id outside the vocabulary");
  }
  return texts;
}

// A model for each half of the ranks, at once.
void of_halves(const char* model, Texts expected) {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank_of(MPI_COMM_WORLD) * 2 / ranks, 0, &half);
  int size = 1;
  MPI_Comm_size(half, &size);
  {
    maniple::Llm llm(half, {.model = model, .tensor_size = size, .dtype = "fp32", .on_fault = tell});
    pass_a_message(half);
    const Texts texts = texts_of(llm.generate(prompts, drawn));
    if (rank_of(half) == 0)
      check(rank_of(MPI_COMM_WORLD) != 0 || texts == expected, "halves answer otherwise");
  }
  MPI_Comm_free(&half);
}

void with_a_callback_that_throws(const char* model, const Texts& expected) {
  maniple::Llm llm(MPI_COMM_WORLD, {.model = model, .dtype = "fp32", .on_fault = tell});
  int calls = 0;
  bool thrown = false;
  try {
    llm.generate(prompts, drawn, [&](const maniple::Completion&) {
      ++calls;
      throw std::out_of_range("enough");
    });
  } catch (const std::out_of_range&) {
    thrown = true;
    check(rank_of(MPI_COMM_WORLD) == 0 && calls == 1, "the callback went on");
  } catch (const maniple::Error& error) {
    thrown = true;
    check(rank_of(MPI_COMM_WORLD) != 0 && static_cast<int>(error.code()) == 70, error.what());
  }
  check(thrown, "what a callback throws is lost");
  check(texts_of(llm.generate(prompts, drawn)) == expected, "after a callback that threw, another answer");
}

}  // namespace

// --- MPI's calls, counted ---

extern "C" {
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) { return ++communicators, PMPI_Comm_dup(comm, made); }
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  return ++communicators, PMPI_Comm_split(comm, color, key, made);
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
  return ++communicators, PMPI_Comm_split_type(comm, type, key, info, made);
}
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
  return ++communicators, PMPI_Comm_create_group(comm, group, tag, made);
}
int MPI_Comm_free(MPI_Comm* comm) { return --communicators, PMPI_Comm_free(comm); }
int MPI_Comm_group(MPI_Comm comm, MPI_Group* made) { return ++groups, PMPI_Comm_group(comm, made); }
int MPI_Group_incl(MPI_Group group, int n, const int* ranks, MPI_Group* made) {
  return ++groups, PMPI_Group_incl(group, n, ranks, made);
}
int MPI_Group_free(MPI_Group* group) { return --groups, PMPI_Group_free(group); }
}

int main(int argc, char** argv) {
  check(argc == 2, "usage: between DIR");
  const char* const model = argv[1];
  int level = 0, ranks = 1;
  check(code_of([&] { maniple::Llm(MPI_COMM_WORLD, {.model = model}); }) == 69,
        "MPI is not initialised, and nobody says it");
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  cpu_set_t before, after;
  sched_getaffinity(0, sizeof before, &before);

  check(code_of([&] { maniple::Llm(MPI_COMM_WORLD, {.model = "no such model"}); }) == 65,
        "a model that is not there");
  check(code_of([&] { maniple::Llm(MPI_COMM_WORLD, {.model = model, .dtype = "bf61"}); }) == 64,
        "a word that is no type");
  check(code_of([&] { maniple::Llm(MPI_COMM_WORLD, {.model = model, .tensor_size = ranks + 1}); }) != 0,
        "more ranks than there are");
  if (ranks > 1)
    check(code_of([&] {
            maniple::Llm(MPI_COMM_WORLD,
                         {.model = model, .max_num_seqs = rank_of(MPI_COMM_WORLD) == 1 ? 8u : 16u});
          }) == 65,
          "options that differ");

  const Texts texts = of_whole_world(model);
  of_halves(model, texts);
  with_a_callback_that_throws(model, texts);
  check(communicators == 0 && groups == 0, "handles of MPI are left");
  sched_getaffinity(0, sizeof after, &after);
  check(std::memcmp(&before, &after, sizeof before) == 0, "the CPU mask has changed");
  pass_a_message(MPI_COMM_WORLD);
  const bool first = rank_of(MPI_COMM_WORLD) == 0;
  MPI_Finalize();
  if (first) std::puts("passed");
}
