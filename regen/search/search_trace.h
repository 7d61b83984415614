// What a search did, question by question: which row of the portfolio or which part was asked, what
// it took, what it found. `auto` fills it; `regen plan --explain-search` prints it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace regen::search {

struct SearchEvent {
  std::string source;          // a row ("str@exact") or a part ("covering_bound")
  double seconds = 0;          // of the part of the search that asked, when the answer came
  std::int64_t work = 0;       // counted, of the answer
  std::optional<double> cost;  // of a plan within the limits
  std::optional<double> bound;
};

struct SearchTrace {
  std::vector<SearchEvent> events;

  // The event with the first plan, with the cheapest plan (the earliest of equals), and with the
  // greatest bound; null: there was none.
  const SearchEvent* first_plan() const;
  const SearchEvent* best_plan() const;
  const SearchEvent* best_bound() const;
};

}  // namespace regen::search
