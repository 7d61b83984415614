#include "regen/search/build/accounting.h"

#include "regen/graph/analysis.h"
#include "regen/search/build/sequence.h"

namespace regen::search {
namespace {

class PlainAccounting : public Accounting {
 public:
  std::string_view name() const override { return "plain"; }

  Status check(const Graph&) const override { return {}; }

  std::vector<OpId> candidates(const Graph& graph, CandidateSet set) const override {
    return set == CandidateSet::kArticulationPoints ? articulation_points(graph)
                                                    : connected_forward_ops(graph);
  }

  std::vector<OpId> walk(const Graph& graph) const override {
    std::vector<OpId> walk;
    for (OpId op : graph.ops()) {
      if (graph.phase(op) == Phase::kForward) walk.push_back(op);
    }
    return walk;
  }

  Result<Plan> plan(const Graph& graph, const std::vector<OpId>& checkpoints,
                    Effort& effort) const override {
    REGEN_TRY(check_sequences_possible(graph));
    const Checkpoints marks = make_checkpoints(graph, checkpoints);
    return plan_from_sequence(graph, recompute_sequence(graph, marks, effort));
  }

  bool counts_fixed_bytes_twice() const override { return false; }
};

}  // namespace

const Accounting& plain_accounting() {
  static const PlainAccounting kPlain;
  return kPlain;
}

const Accounting& accounting_of(const Problem& problem) {
  const Accounting* named = problem.options.accounting;
  return named == nullptr ? plain_accounting() : *named;
}

Status expect_plain_accounting(const Problem& problem, std::string_view planner) {
  if (&accounting_of(problem) == &plain_accounting()) return {};
  return bad_input("planner " + std::string(planner) +
                   " counts memory in one way only, expected accounting plain");
}

}  // namespace regen::search
