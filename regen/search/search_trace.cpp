#include "regen/search/search_trace.h"

namespace regen::search {

const SearchEvent* SearchTrace::first_plan() const {
  for (const SearchEvent& event : events) {
    if (event.cost) return &event;
  }
  return nullptr;
}

const SearchEvent* SearchTrace::best_plan() const {
  const SearchEvent* best = nullptr;
  for (const SearchEvent& event : events) {
    if (event.cost && (best == nullptr || *event.cost < *best->cost)) best = &event;
  }
  return best;
}

const SearchEvent* SearchTrace::best_bound() const {
  const SearchEvent* best = nullptr;
  for (const SearchEvent& event : events) {
    if (event.bound && (best == nullptr || *event.bound > *best->bound)) best = &event;
  }
  return best;
}

}  // namespace regen::search
