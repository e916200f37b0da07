// Preloaded into the ranks of a job under srun: delays rank 0's notice of the end of the first fence in
// MPI_Init by LATE_FENCE ms, as a busy node does.
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace {
using Done = void (*)(int status, void* data);
using Fence = int (*)(const void* procs, size_t nprocs, const void* info, size_t ninfo, Done done,
                      void* data);

struct Call {
  Done done;
  void* data;
};

void hear_late(int status, void* data) {
  std::thread([status, call = static_cast<Call*>(data)] {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(std::getenv("LATE_FENCE"))));
    std::fprintf(stderr, "rank 0 was late\n");
    call->done(status, call->data);
    delete call;
  }).detach();
}
}  // namespace

extern "C" int PMIx_Fence_nb(const void* procs, size_t nprocs, const void* info, size_t ninfo, Done done,
                             void* data) {
  static const auto next = reinterpret_cast<Fence>(::dlsym(RTLD_NEXT, "PMIx_Fence_nb"));
  static int calls = 0;
  const char* rank = std::getenv("PMIX_RANK");
  const bool late = calls++ == 0 && rank && std::string_view(rank) == "0";
  return late ? next(procs, nprocs, info, ninfo, hear_late, new Call{done, data})
              : next(procs, nprocs, info, ninfo, done, data);
}
