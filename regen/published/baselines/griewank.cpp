// Binomial checkpointing on the chain of articulation points: the forward ops between two of them
// form a block, and a block's backward ops are those that read its values.
#include <algorithm>
#include <numeric>

#include "regen/graph/analysis.h"
#include "regen/published/baselines/binomial.h"
#include "regen/published/checkmate/artifact_accounting.h"
#include "regen/published/checkmate/stage_schedule.h"
#include "regen/published/options.h"
#include "regen/published/planner_list.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

// The dynamic program is cubic in the blocks; longer chains are cut into this many blocks of
// about equal cost, which keeps the plan right and nearly as cheap.
constexpr std::size_t kMaxBlocks = 256;
// With less effort than this, a table of an eighth of the size is used.
constexpr std::size_t kMaxBlocksOfLowEffort = 128;
constexpr double kLowEffortSeconds = 2;
constexpr std::int64_t kLowEffortWork = 2'000'000;
constexpr std::size_t kMaxSlots = 64;

// The forward pass as a chain of blocks, each ending with an articulation point.
struct BlockChain {
  std::vector<OpId> ends;  // last op of each block
  std::vector<double> costs;
  std::vector<std::int64_t> reversed_from;  // first stage that reverses the block or an earlier one
  IdVector<OpId, std::uint32_t> block;      // of each forward op; beyond the last: the last
};

std::vector<OpId> thinned(const std::vector<OpId>& points, const std::vector<double>& until,
                          std::size_t most) {
  if (points.size() <= most) return points;
  std::vector<OpId> kept;
  const double total = until.back();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double wanted = total * static_cast<double>(kept.size() + 1) / static_cast<double>(most);
    if (until[i] >= wanted || i + 1 == points.size()) kept.push_back(points[i]);
  }
  return kept;
}

BlockChain make_chain(const Graph& graph, std::size_t most_blocks) {
  std::vector<OpId> points = articulation_points(graph);
  std::erase_if(points, [&](OpId op) { return graph.outputs(op).empty(); });
  std::vector<double> prefix(graph.num_ops() + 1, 0.0);
  for (OpId op : graph.ops()) {
    const bool forward = graph.phase(op) == Phase::kForward;
    prefix[op.index() + 1] =
        prefix[op.index()] + (forward ? graph.rerun_cost(search::base_variant(graph, op)) : 0.0);
  }
  std::vector<double> until;
  until.reserve(points.size());
  for (OpId op : points) until.push_back(prefix[op.index() + 1]);

  BlockChain chain;
  chain.ends = thinned(points, until, most_blocks);
  double done = 0;
  for (OpId end : chain.ends) {
    chain.costs.push_back(prefix[end.index() + 1] - done);
    done = prefix[end.index() + 1];
  }
  chain.block = IdVector<OpId, std::uint32_t>(graph.num_ops(), 0);
  std::size_t block = 0;
  for (OpId op : graph.ops()) {
    while (block + 1 < chain.ends.size() && op > chain.ends[block]) ++block;
    chain.block[op] = static_cast<std::uint32_t>(block);
  }
  return chain;
}

// Which stages reverse which block: an op after the forward pass belongs to the earliest block
// whose values it or an op before it reads.
void find_reversal_stages(const Graph& graph, BlockChain& chain) {
  const auto blocks = static_cast<std::int64_t>(chain.ends.size());
  const auto stages = static_cast<std::int64_t>(graph.num_ops());
  chain.reversed_from.assign(chain.ends.size(), stages);
  std::int64_t reached = blocks;  // blocks reached.. have been started
  for (OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::kForward) continue;
    for (TensorId t : graph.reads(search::base_variant(graph, op))) {
      const OpId maker = graph.producer(t);
      if (!maker.valid() || graph.phase(maker) != Phase::kForward) continue;
      // The loss reads the last block without reversing it.
      if (graph.phase(op) == Phase::kLoss) continue;
      while (reached > static_cast<std::int64_t>(chain.block[maker])) {
        chain.reversed_from[--reached] = static_cast<std::int64_t>(op.index());
      }
    }
  }
}

// Gradients stay until their last use, the value just made for one stage, and a forward value
// that cannot be recomputed to the end.
void keep_always(const Graph& graph, StageSchedule& schedule) {
  const IdVector<OpId, char> repeatable = search::repeatable_ops(graph, /*forward_only=*/true);
  const auto end = static_cast<std::int64_t>(graph.num_ops()) - 1;
  for (TensorId t : graph.tensors()) {
    const OpId maker = graph.producer(t);
    if (!maker.valid()) continue;
    const auto made = static_cast<std::int64_t>(maker.index());
    std::int64_t last = made + 1;
    if (graph.phase(maker) != Phase::kForward) {
      for (OpId reader : graph.consumers(t)) last = static_cast<std::int64_t>(reader.index());
    } else if (!repeatable[maker]) {
      last = end;
    }
    schedule.keep(t, made + 1, last);
  }
}

// In plain accounting a value stays while the forward pass still needs it; a block's values, once
// re-run, stay until the block is reversed, and those of the last block, which is reversed first,
// from the forward pass on.
void keep_blocks(const Graph& graph, const BlockChain& chain, StageSchedule& schedule) {
  const auto stages = static_cast<std::int64_t>(graph.num_ops());
  for (OpId op : graph.ops()) {
    if (graph.phase(op) != Phase::kForward) continue;
    const std::uint32_t block = chain.block[op];
    const auto made = static_cast<std::int64_t>(op.index());
    const auto again = block + 1 == chain.ends.size() ? made : chain.reversed_from[block];
    const auto last = block == 0 ? stages - 1 : chain.reversed_from[block - 1] - 1;
    for (TensorId t : graph.outputs(op)) {
      schedule.keep(t, again + 1, last);
      for (OpId reader : graph.consumers(t)) {
        if (graph.phase(reader) != Phase::kForward) continue;
        schedule.keep(t, made + 1, static_cast<std::int64_t>(reader.index()));
      }
    }
  }
}

Result<search::Candidate> plan_slots(const search::Problem& problem, const BlockChain& chain,
                                     const BinomialTable& table, std::size_t slots,
                                     Effort& effort) {
  const Graph& graph = *problem.graph;
  const bool plain = !counts_as_artifact(problem);
  const auto stages = static_cast<std::int64_t>(graph.num_ops());
  StageSchedule schedule(graph);
  keep_always(graph, schedule);
  if (plain) keep_blocks(graph, chain, schedule);
  for (const StoredBlock& stored : table.schedule(slots)) {
    const OpId end = chain.ends[stored.block];
    const std::int64_t made = stored.from == chain.ends.size()
                                  ? static_cast<std::int64_t>(end.index())
                                  : chain.reversed_from[stored.from];
    const std::int64_t last =
        stored.block == 0 ? stages - 1 : chain.reversed_from[stored.block - 1];
    for (TensorId t : graph.outputs(end)) schedule.keep(t, made + 1, last);
  }
  schedule.complete();
  search::Candidate candidate{.note = format_count(slots, "checkpoint slot") + " on a chain of " +
                                      format_count(chain.ends.size(), "block")};
  candidate.plan =
      plain ? search::plan_from_sequence(graph, schedule.sequence()) : schedule.compile();
  effort.add(static_cast<std::int64_t>(candidate.plan.steps.size()));
  REGEN_ASSIGN(candidate.simulation, simulate(graph, candidate.plan, {.link = problem.link}));
  return candidate;
}

}  // namespace

Result<search::Proposal> plan_griewank(const search::Problem& problem, Effort& effort) {
  const Graph& graph = *problem.graph;
  REGEN_TRY(search::accounting_of(problem).check(graph));
  REGEN_TRY(search::check_sequences_possible(graph));
  const bool in_haste =
      effort.seconds_left() < kLowEffortSeconds || effort.work_left() < kLowEffortWork;
  BlockChain chain = make_chain(graph, in_haste ? kMaxBlocksOfLowEffort : kMaxBlocks);
  if (chain.ends.empty()) {
    return search::Proposal{.status = search::PlanStatus::kUnknown,
                            .note = "the forward graph has no articulation points to store"};
  }
  find_reversal_stages(graph, chain);
  const std::optional<std::int64_t> wanted = options_of(problem).slots;
  if (wanted && (*wanted < 1 || *wanted > 1'000'000)) {
    return bad_input("slots: " + std::to_string(*wanted) +
                     " is out of range, expected 1 to 1000000");
  }
  const std::size_t most = std::min(
      {chain.ends.size(), kMaxSlots, static_cast<std::size_t>(wanted.value_or(1'000'000))});
  const BinomialTable table(chain.costs, most);
  search::BestCandidate best(problem);
  for (std::size_t slots = wanted ? most : 1; slots <= most; ++slots) {
    if (best.best() && effort.exhausted()) break;
    REGEN_ASSIGN(search::Candidate candidate, plan_slots(problem, chain, table, slots, effort));
    best.offer(std::move(candidate));
  }
  return std::move(best).proposal("no number of slots was tried");
}

}  // namespace regen::published
