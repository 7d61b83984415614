// Independent pieces of work on several cores.
#pragma once

#include <cstddef>
#include <functional>

namespace regen {

// Cores that this process may use, at least 1.
int available_threads();

// Calls body(i) once for each i in [0, count), in any order, on at most `threads` threads (0: one
// for each core), the caller's among them. A body that stores its
// result under i gives the same results on every machine. After an exception no new piece is begun; the first one is thrown again here.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

}  // namespace regen
