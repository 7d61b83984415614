// The planners over lower sets in the default model: exact over the whole lattice, approximate over
// one set for each op, and Chen's cuts with the same back end.
#include <algorithm>
#include <cmath>

#include "regen/graph/analysis.h"
#include "regen/plan/explain.h"
#include "regen/published/checkmate/artifact_accounting.h"
#include "regen/published/lower_sets/lower_set_estimate.h"
#include "regen/published/lower_sets/lower_set_search.h"
#include "regen/published/lower_sets/lower_sets_published.h"
#include "regen/published/options.h"
#include "regen/published/planner_list.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

constexpr std::size_t kMaxNodes = 8192;  // ancestors and needs are bits for each pair
constexpr std::size_t kMaxSinks = 15;
// Up to here every transition is tried, so that the best is proven.
constexpr std::size_t kMaxSetsForAll = 1024;
// Counted work (transitions and states) of one planning, so that no budget takes for ever.
constexpr std::int64_t kMaxWork = 2'500'000;
// When an estimate has found a chain, the search over one set for each op looks at so many nodes.
constexpr std::size_t kQuickNodes = 500'000;
constexpr std::size_t kBeam = 16;
constexpr int kEstimates = 3;
constexpr double kWellUsed = 0.98;  // of the budget: another estimate gains little
constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max() / 4;

class LowerSetPlanner {
 public:
  LowerSetPlanner(const search::Problem& problem, Effort& effort)
      : problem_(problem),
        effort_(effort),
        judged_(judged_problem(problem)),
        graph_(*problem.graph),
        nodes_(lower_set_nodes(graph_, /*with_loss=*/false)),
        attached_(attach_sinks(nodes_, kMaxSinks)),
        blocks_(graph_, nodes_),
        best_(judged_) {}

  Result<search::Proposal> plan_chains(bool whole_lattice);
  Result<search::Proposal> plan_cuts();

 private:
  // With a preference for memory the leanest plan is the best, whatever the budget.
  static search::Problem judged_problem(search::Problem problem) {
    if (options_of(problem).prefer == Preference::kMemory) problem.budget.reset();
    return problem;
  }
  bool lean() const { return options_of(problem_).prefer == Preference::kMemory; }
  Bytes room() const {
    return problem_.budget ? *problem_.budget - graph_.fixed_bytes() : kUnlimited;
  }
  bool fits() const {
    return best_.best() && best_.best()->simulation.activation_peak_bytes <= room();
  }
  // Of re-runs; infinite while nothing fits.
  double cost_to_beat() const {
    return fits() ? best_.best()->simulation.cost - graph_.base_cost()
                  : std::numeric_limits<double>::infinity();
  }
  bool done() const { return effort_.exhausted(); }

  Result<Simulation> offer(const LowerSetFamily& family, const std::vector<std::uint32_t>& chain,
                           const std::string& note);
  Status offer_simple_chains();
  Result<bool> search(const LowerSetFamily& family, Transitions transitions, std::int64_t work,
                      bool& exact);
  Result<bool> cheapest(const LowerSetFamily& family, LowerSetMemory& memory,
                        ChainSearchOptions options, Effort& effort);
  Result<bool> estimate(const LowerSetFamily& family);
  Result<bool> leanest(const LowerSetFamily& family, LowerSetMemory& memory,
                       ChainSearchOptions options, Effort& effort);
  Result<search::Proposal> conclude(bool proven, const std::string& reason);

  const search::Problem& problem_;
  Effort& effort_;
  search::Problem judged_;
  const Graph& graph_;
  LowerSetNodes nodes_;
  bool attached_;  // not the whole lattice, then
  LowerSetBlocks blocks_;
  search::BestCandidate best_;
};

Result<Simulation> LowerSetPlanner::offer(const LowerSetFamily& family,
                                          const std::vector<std::uint32_t>& chain,
                                          const std::string& note) {
  const std::vector<OpId> sequence =
      blocks_.sequence(sets_of(family, chain), /*rerun_last=*/false, effort_);
  search::Candidate candidate{.plan = search::plan_from_sequence(graph_, sequence),
                              .note = note + format_count(chain.size(), "block")};
  REGEN_ASSIGN(candidate.simulation, simulate(graph_, candidate.plan, {.link = problem_.link}));
  Simulation simulation = candidate.simulation;
  best_.offer(std::move(candidate));
  return simulation;
}

// A block ends with the first cut at which it has grown to `bytes`.
std::vector<std::uint32_t> chain_of_cuts(const LowerSetFamily& cuts, Bytes bytes) {
  std::vector<std::uint32_t> chain;
  std::uint32_t from = 0;
  for (std::uint32_t set = 1; set + 1 < cuts.size(); ++set) {
    if (cuts.bytes(set) - cuts.bytes(from) < bytes) continue;
    chain.push_back(set);
    from = set;
  }
  chain.push_back(static_cast<std::uint32_t>(cuts.size() - 1));
  return chain;
}

// What takes no search: nothing re-run, then chains of cuts with more and more blocks.
Status LowerSetPlanner::offer_simple_chains() {
  std::vector<OpId> all(graph_.ops().begin(), graph_.ops().end());
  search::Candidate keep{.plan = search::plan_from_sequence(graph_, all),
                         .note = "everything kept"};
  REGEN_ASSIGN(keep.simulation, simulate(graph_, keep.plan, {.link = problem_.link}));
  best_.offer(std::move(keep));
  if (!lean() && fits()) return {};
  const LowerSetFamily cuts = LowerSetFamily::cuts(nodes_);
  const Bytes total = cuts.bytes(cuts.size() - 1);
  std::size_t blocks = 0;
  for (Bytes parts = 2; parts <= 256; parts *= 2) {
    const auto chain = chain_of_cuts(cuts, total / parts);
    if (chain.size() == blocks) continue;
    blocks = chain.size();
    REGEN_TRY(offer(cuts, chain, "cuts, "));
  }
  return {};
}

Result<search::Proposal> LowerSetPlanner::plan_cuts() {
  const LowerSetFamily cuts = LowerSetFamily::cuts(nodes_);
  const double parts = std::sqrt(static_cast<double>(cuts.size()));
  const Bytes bytes = static_cast<Bytes>(static_cast<double>(cuts.bytes(cuts.size() - 1)) / parts);
  REGEN_TRY(
      offer(cuts, chain_of_cuts(cuts, bytes), "every cut after " + format_bytes(bytes) + ", "));
  return std::move(best_).proposal("");
}

// The cheapest chain within the budget, if there is one cheaper than the best so far.
Result<bool> LowerSetPlanner::cheapest(const LowerSetFamily& family, LowerSetMemory& memory,
                                       ChainSearchOptions options, Effort& effort) {
  // Without a chain yet, first a narrow search: the better its chain, the more the wide one can
  // leave out.
  for (const std::size_t beam : {kBeam, std::size_t{0}}) {
    if (beam > 0 && fits()) continue;
    options.beam = beam;
    options.cost_below = cost_to_beat();
    const ChainSearchResult found = search_chains(memory, family, options, effort);
    if (found.chain) REGEN_TRY(offer(family, *found.chain, ""));
    if (found.complete) return true;
  }
  return false;
}

// Chains that an estimate finds, for budgets around the real one: the more the estimate is given,
// the cheaper its chain; the judge says how much it may be given. Whether one of them fits.
Result<bool> LowerSetPlanner::estimate(const LowerSetFamily& family) {
  const LowerSetEstimate guess(blocks_, family);
  const auto budget = static_cast<double>(room());
  double part = 1;
  bool found = false;
  for (int i = 0; i < kEstimates && !done(); ++i) {
    const double known = cost_to_beat();
    const auto chain =
        guess.cheapest({.budget = static_cast<Bytes>(budget * part), .cost_below = known}, effort_);
    if (!chain) break;
    REGEN_ASSIGN(const Simulation simulation, offer(family, *chain, "estimated, "));
    const double used = static_cast<double>(simulation.activation_peak_bytes) / budget;
    found = found || used <= 1;
    if (used <= 1 && used >= kWellUsed) break;
    part /= used;
  }
  return found;
}

// Bisects for the least budget that some chain fits into, then takes the cheapest of those.
Result<bool> LowerSetPlanner::leanest(const LowerSetFamily& family, LowerSetMemory& memory,
                                      ChainSearchOptions options, Effort& effort) {
  Bytes low = structural_bound(graph_).bytes - graph_.fixed_bytes();
  options.leanest = true;
  while (best_.best() && low < best_.best()->simulation.activation_peak_bytes) {
    const Bytes high = best_.best()->simulation.activation_peak_bytes;
    options.budget = low + (high - 1 - low) / 2;
    const ChainSearchResult found = search_chains(memory, family, options, effort);
    if (!found.complete) return false;
    if (!found.chain) {
      low = options.budget + 1;
      continue;
    }
    REGEN_ASSIGN(const Simulation simulation, offer(family, *found.chain, ""));
    if (simulation.activation_peak_bytes > options.budget) return false;  // counted inexactly
  }
  options.leanest = false;
  options.budget = best_.best()->simulation.activation_peak_bytes;
  options.cost_below = best_.best()->simulation.cost - graph_.base_cost();
  const ChainSearchResult found = search_chains(memory, family, options, effort);
  if (found.chain) REGEN_TRY(offer(family, *found.chain, ""));
  return found.complete;
}

Result<bool> LowerSetPlanner::search(const LowerSetFamily& family, Transitions transitions,
                                     std::int64_t work, bool& exact) {
  LowerSetMemory memory(blocks_, family);
  exact = memory.exact();
  Limits limits{.seconds = effort_.seconds_left(),
                .work = std::min(work, effort_.work_left()),
                .interrupt = effort_.limits().interrupt};
  Effort effort(limits);
  const ChainSearchOptions options{.budget = room(), .transitions = transitions};
  auto complete =
      lean() ? leanest(family, memory, options, effort) : cheapest(family, memory, options, effort);
  effort_.add(effort.work());
  return complete;
}

Result<search::Proposal> LowerSetPlanner::conclude(bool proven, const std::string& reason) {
  const bool fit = fits();
  if (proven && !fit) {
    return search::Proposal{.status = search::PlanStatus::kInfeasible,
                            .note = "no chain of lower sets fits into " +
                                    format_grouped(problem_.budget.value_or(0)) + " bytes"};
  }
  search::Proposal proposal = std::move(best_).proposal("no chain was found");
  if (proven && fit && !lean()) proposal.status = search::PlanStatus::kOptimal;
  if (!reason.empty()) proposal.note += "; " + reason;
  return proposal;
}

Result<search::Proposal> LowerSetPlanner::plan_chains(bool whole_lattice) {
  const LowerSetFamily pruned = LowerSetFamily::pruned(nodes_);
  REGEN_TRY(offer_simple_chains());
  if (!lean() && fits() && best_.best()->simulation.cost <= graph_.base_cost()) {
    return conclude(true, "");
  }
  if (done()) return conclude(false, "the limit was reached");
  bool estimated = false;
  if (!lean() && problem_.budget) {
    REGEN_ASSIGN(estimated, estimate(pruned));
  }
  std::optional<LowerSetFamily> all;
  if (whole_lattice) all = LowerSetFamily::all(nodes_, kMaxLowerSets, kMaxLatticeBytes, effort_);
  bool exact = false;
  if (!estimated || !all) {
    const auto little = static_cast<std::int64_t>(kQuickNodes / (nodes_.size() + 1));
    REGEN_TRY(search(pruned, Transitions::kAll, estimated ? little : kMaxWork, exact));
  }
  if (!all) {
    const std::string why = whole_lattice ? "too many lower sets, so " : "";
    return conclude(false, why + "one set for each op");
  }
  const Transitions transitions =
      all->size() <= kMaxSetsForAll ? Transitions::kAll : Transitions::kIrreducible;
  REGEN_ASSIGN(const bool complete, search(*all, transitions, kMaxWork, exact));
  if (!complete) return conclude(false, "the limit was reached");
  const std::string sets = std::to_string(all->size()) + " lower sets";
  return conclude(exact && transitions == Transitions::kAll && !attached_,
                  attached_ ? sets + ", ops that nothing reads bound to what they read" : sets);
}

Status check(const search::Problem& problem) {
  if (counts_as_artifact(problem)) {
    return limit_reached("lower sets know the plain accounting only");
  }
  const auto forward = [&](OpId op) { return problem.graph->phase(op) == Phase::kForward; };
  if (std::ranges::count_if(problem.graph->ops(), forward) >
      static_cast<std::ptrdiff_t>(kMaxNodes)) {
    return limit_reached("more than " + std::to_string(kMaxNodes) +
                         " forward ops, too many for lower sets");
  }
  return search::check_sequences_possible(*problem.graph);
}

bool published(const search::Problem& problem) {
  return options_of(problem).model == PlanningModel::kPublished;
}

}  // namespace

Result<search::Proposal> plan_lower_sets(const search::Problem& problem, Effort& effort) {
  REGEN_TRY(check(problem));
  if (published(problem)) return plan_published_lower_sets(problem, PublishedSets::kAll, effort);
  return LowerSetPlanner(problem, effort).plan_chains(/*whole_lattice=*/true);
}

Result<search::Proposal> plan_lower_sets_approx(const search::Problem& problem, Effort& effort) {
  REGEN_TRY(check(problem));
  if (published(problem)) return plan_published_lower_sets(problem, PublishedSets::kPruned, effort);
  return LowerSetPlanner(problem, effort).plan_chains(/*whole_lattice=*/false);
}

Result<search::Proposal> plan_chen_cuts(const search::Problem& problem, Effort& effort) {
  REGEN_TRY(check(problem));
  if (published(problem)) return plan_published_lower_sets(problem, PublishedSets::kCuts, effort);
  return LowerSetPlanner(problem, effort).plan_cuts();
}

}  // namespace regen::published
