// The searches that may still run beside a training: a process that ends must not leave a thread
// behind.
#pragma once

#include <cstddef>
#include <memory>

#include "regen/search/services/background_search.h"

namespace regen::session {

// Remembers the search for as long as it lives.
void note_search(const std::shared_ptr<search::BackgroundSearch>& search);

// How many searches there are.
std::size_t num_searches();

// Stops all of them and waits for their ends. At the end of a process.
void stop_all_searches();

}  // namespace regen::session
