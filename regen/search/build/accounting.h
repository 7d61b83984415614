// How bytes are counted: what a set of checkpoints keeps, and in which order candidates are
// visited. The plain accounting releases every tensor at its last use; a published artifact may
// differ (published/checkmate/artifact_accounting.h).
#pragma once

#include <vector>

#include "regen/search/planner.h"

namespace regen::search {

// The forward ops that may become checkpoints: articulation points, or all with an output.
enum class CandidateSet : std::uint8_t { kArticulationPoints, kAll };

class Accounting {
 public:
  virtual ~Accounting() = default;

  virtual std::string_view name() const = 0;
  // Whether it can count this graph.
  virtual Status check(const Graph& graph) const = 0;
  // The candidates, in the order in which strategies visit them.
  virtual std::vector<OpId> candidates(const Graph& graph, CandidateSet set) const = 0;
  // The forward ops in the order in which a greedy strategy adds up what they make.
  virtual std::vector<OpId> walk(const Graph& graph) const = 0;
  // The plan that keeps the outputs of `checkpoints` (any order) and recomputes between them.
  virtual Result<Plan> plan(const Graph& graph, const std::vector<OpId>& checkpoints,
                            Effort& effort) const = 0;
  // Whether a batch must fit with its fixed bytes counted twice.
  virtual bool counts_fixed_bytes_twice() const = 0;
};

const Accounting& plain_accounting();

// The one that the problem names, or the plain one.
const Accounting& accounting_of(const Problem& problem);

// For planners that support the plain one only: refuses any other.
Status expect_plain_accounting(const Problem& problem, std::string_view planner);

}  // namespace regen::search
