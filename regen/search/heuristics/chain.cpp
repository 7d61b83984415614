// Persistent checkpointing of heterogeneous chains (Beaumont et al.), exact in bytes: first a
// table with few corners for each range finds a plan and so a bound on the cost, then an exact
// one searches below that bound.
#include "regen/search/heuristics/chain.h"

#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"
#include "regen/search/heuristics/chain_blocks.h"
#include "regen/search/heuristics/chain_costs.h"
#include "regen/search/heuristics/chain_table.h"
#include "regen/search/heuristics/chen.h"
#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

// The ways grow with the cube of the blocks. Chains too long to be exact need not take long.
constexpr ChainBlockLimits kBlockLimits{.max_blocks = 256, .joined_blocks = 128};
constexpr std::size_t kCoarseCorners = 12;
constexpr std::size_t kMaxCorners = 4096;
constexpr Bytes kNoBudget = std::numeric_limits<Bytes>::max() / 8;

// The ops of one run.
std::vector<OpId> ops_of(const ChainBlock& block, const ChainRun& run) {
  switch (run.kind) {
    case ChainRun::kPass:
      return run.first ? block.ops : block.pass;
    case ChainRun::kSave:
      return run.first ? block.ops : block.save;
    case ChainRun::kLast:
      return run.first ? block.ops : block.last[run.pending];
    case ChainRun::kEarly:
      return block.early;
    case ChainRun::kReversal:
      break;
  }
  std::vector<OpId> ops = run.pending == kBoth ? block.early : std::vector<OpId>{};
  ops.insert(ops.end(), block.late.begin(), block.late.end());
  return ops;
}

std::vector<OpId> to_sequence(const ChainBlocks& chain, const std::vector<ChainRun>& runs) {
  std::vector<OpId> sequence;
  for (const ChainRun& run : runs) {
    const std::vector<OpId> ops = ops_of(chain.blocks[run.block], run);
    sequence.insert(sequence.end(), ops.begin(), ops.end());
  }
  return sequence;
}

// Under a budget the cheapest, otherwise the one of least memory.
std::optional<Corner> choose(const ChainTable& table, bool has_budget, double most_cost) {
  if (!table.complete()) return std::nullopt;
  for (const Corner& corner : table.costs()) {
    const bool wanted = !has_budget || &corner == &table.costs().back();
    if (wanted && corner.cost <= most_cost) return corner;
  }
  return std::nullopt;
}

// What to fall back upon when no schedule of the class was found.
Result<Proposal> simple_checkpoints(const Problem& problem, const std::string& reason,
                                    Effort& effort) {
  BestCandidate best(problem);
  const std::vector<std::vector<OpId>> choices{
      candidate_checkpoints(problem, CandidateSet::kAll),
      candidate_checkpoints(problem, CandidateSet::kArticulationPoints),
      sqrt_checkpoints(problem, CandidateSet::kArticulationPoints)};
  for (const auto& checkpoints : choices) {
    REGEN_ASSIGN(Candidate candidate, plan_checkpoints(problem, checkpoints, effort));
    candidate.note = reason + "; " + format_count(checkpoints.size(), "checkpoint") + " instead";
    best.offer(std::move(candidate));
  }
  return std::move(best).proposal(reason);
}

}  // namespace

Result<ChainSchedule> chain_schedule(const Graph& graph, std::optional<Bytes> budget,
                                     std::optional<double> cost_cap, Effort& effort) {
  REGEN_TRY(check_sequences_possible(graph));
  const ChainBlocks chain = make_chain_blocks(graph, kBlockLimits);
  if (chain.num_forward == 0) return limit_reached("the graph has no forward pass");
  const std::vector<BlockCosts> costs = chain_costs(graph, chain);
  const double cap = cost_cap.value_or(kImpossible);
  ChainTableOptions options{.budget = budget ? *budget - graph.fixed_bytes() : kNoBudget,
                            .most_cost = cap,
                            .max_corners = kCoarseCorners};
  const ChainTable coarse(costs, options, effort);
  const std::optional<Corner> found = choose(coarse, budget.has_value(), cap);

  // Without a budget and a cap the least memory is known now: thinning keeps the lowest corners.
  if (found && (budget || !cost_cap)) options.most_cost = found->cost;
  if (found && !budget) options.budget = found->bytes;
  options.max_corners = kMaxCorners;
  std::optional<ChainTable> exact;
  if (coarse.thinned()) exact.emplace(costs, options, effort);
  const bool use_exact = exact && choose(*exact, budget.has_value(), cap);
  const ChainTable& table = use_exact ? *exact : coarse;
  const std::optional<Corner> best = choose(table, budget.has_value(), cap);
  if (!best) {
    return limit_reached(coarse.complete() ? "no persistent schedule of the chain fits"
                                           : "a limit was reached before a schedule was found");
  }
  return ChainSchedule{.sequence = to_sequence(chain, table.schedule(best->bytes)),
                       .peak_bytes = graph.fixed_bytes() + best->bytes,
                       .exact = chain.exact,
                       .num_blocks = chain.blocks.size(),
                       .proven = chain.exact && !chain.merged && !table.thinned()};
}

Result<Proposal> plan_chain(const Problem& problem, Effort& effort) {
  REGEN_TRY(expect_plain_accounting(problem, "chain"));
  REGEN_TRY(check_sequences_possible(*problem.graph));
  const auto schedule = chain_schedule(*problem.graph, problem.budget, problem.cost_cap, effort);
  if (!schedule.ok()) return simple_checkpoints(problem, schedule.error().message, effort);
  // Without a budget least memory is the aim, and the cost is not proven to be the least.
  const bool optimal = schedule->proven && problem.budget;
  return Proposal{.status = optimal ? PlanStatus::kOptimal : PlanStatus::kFeasible,
                  .plan = plan_from_sequence(*problem.graph, schedule->sequence),
                  .note = "a chain of " + format_count(schedule->num_blocks, "block")};
}

}  // namespace regen::search
