// Asks a model that all ranks hold together. usage: mpirun -n 2 ask DIR PROMPT...
#include <maniple/llm.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  int level = 0, rank = 0, ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int code = 0;
  try {
    maniple::Llm llm(MPI_COMM_WORLD, {.model = argv[1], .tensor_size = ranks, .dtype = "fp32"});
    const std::vector<std::string> prompts(argv + 2, argv + argc);
    for (const maniple::Completion& answer : llm.generate(prompts, {.temperature = 0, .max_tokens = 16}))
      std::printf("%s\n", answer.error.empty() ? answer.text.c_str() : answer.error.c_str());
  } catch (const maniple::Error& error) {
    if (rank == 0) std::fprintf(stderr, "ask: %s\n", error.what());
    code = static_cast<int>(error.code());
  }
  MPI_Finalize();
  return code;
}
