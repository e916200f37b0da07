// Independent pieces of work on a few threads.
#pragma once

#include <cstddef>
#include <functional>

namespace maniple {

// Runs piece(0) to piece(count - 1). threads: 0 are as many as the machine has, at most 8. Throws the first exception of a
// piece; no further one begins then.
void work_on(size_t count, unsigned threads, const std::function<void(size_t)>& piece);

}  // namespace maniple
