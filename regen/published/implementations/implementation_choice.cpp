#include "regen/published/implementations/implementation_choice.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "regen/search/local/local_search.h"

namespace regen::published {
namespace {

constexpr double kNoCost = std::numeric_limits<double>::infinity();
// Single changes that are tried, each at the price of a quick plan.
constexpr std::size_t kMostChanges = 48;
// What a byte kept for the backward pass is worth, times the cost of the step for each byte that
// can be kept: from nothing to more than any cost.
constexpr double kByteWorths[] = {0, 0.003, 0.03, 0.3, 3, 1e6};
constexpr int kPasses = 3;

// Choices by a price for each byte of the forward pass that the rest of the step reads.
class WeighedChoice {
 public:
  WeighedChoice(const Graph& graph, const Implementations& all)
      : graph_(graph), all_(all), readers_(graph.num_tensors(), 0) {
    turn_ = graph.num_ops();
    for (std::size_t i = graph.num_ops(); i-- > 0;) {
      if (graph.phase(OpId(i)) != Phase::kForward) turn_ = i;
    }
    for (TensorId t : graph.tensors()) {
      if (rests(t)) bytes_ += static_cast<double>(graph.bytes(t));
    }
  }

  ChosenImplementations choose(double worth) {
    const double price = bytes_ > 0 ? worth * graph_.base_cost() / bytes_ : 0;
    ChosenImplementations chosen = all_.base();
    std::ranges::fill(readers_.raw(), 0);
    for (std::size_t i = turn_; i < graph_.num_ops(); ++i) count(OpId(i), chosen, 1);
    for (int pass = 0; pass < kPasses; ++pass) {
      for (std::size_t i = turn_; i < graph_.num_ops(); ++i) take_best(OpId(i), chosen, price);
    }
    return chosen;
  }

 private:
  bool rests(TensorId t) const { return !graph_.fixed(t) && graph_.producer(t).index() < turn_; }

  void count(OpId op, const ChosenImplementations& chosen, int change) {
    for (TensorId t : all_.of(op)[chosen[op]].reads) readers_[t] += change;
  }

  void take_best(OpId op, ChosenImplementations& chosen, double price) {
    if (all_.of(op).size() == 1) return;
    count(op, chosen, -1);
    double least = kNoCost;
    const std::size_t now = chosen[op];
    for (std::size_t i = 0; i < all_.of(op).size(); ++i) {
      const Implementation& one = all_.of(op)[i];
      if (one.overwrites && i != now) continue;  // whether it can is not known here
      double worth = one.cost;
      for (TensorId t : one.reads) {
        if (rests(t) && readers_[t] == 0) worth += price * static_cast<double>(graph_.bytes(t));
      }
      if (worth >= least) continue;
      least = worth;
      chosen[op] = i;
    }
    count(op, chosen, 1);
  }

  const Graph& graph_;
  const Implementations& all_;
  std::size_t turn_ = 0;
  double bytes_ = 0;                 // of all that the rest of the step could read
  IdVector<TensorId, int> readers_;  // after the forward pass
};

class QuickImplementations {
 public:
  QuickImplementations(const search::Problem& problem, const Implementations& all,
                       const IdVector<OpId, VariantId>& preferred, Effort& effort)
      : problem_(problem),
        graph_(*problem.graph),
        all_(all),
        preferred_(preferred),
        effort_(effort) {
    problem_.observer = nullptr;
  }

  Result<ChosenImplementations> best() {
    REGEN_TRY(offer(all_.base()));
    WeighedChoice weighed(graph_, all_);
    for (const double worth : kByteWorths) {
      ChosenImplementations chosen = weighed.choose(worth);
      if (all_.settle(chosen)) REGEN_TRY(offer(std::move(chosen)));
    }
    REGEN_TRY(change_one_by_one());
    return std::move(best_);
  }

 private:
  // Those that read most come first: there is most to gain.
  std::vector<OpId> ops_with_other_reads() const {
    std::vector<std::pair<Bytes, OpId>> found;
    for (OpId op : graph_.ops()) {
      if (all_.of(op).size() == 1) continue;
      Bytes most = 0;
      for (const Implementation& one : all_.of(op)) {
        Bytes sum = 0;
        for (TensorId t : one.reads) sum += graph_.bytes(t);
        most = std::max(most, sum);
      }
      found.emplace_back(-most, op);
    }
    std::ranges::sort(found);
    std::vector<OpId> ops;
    ops.reserve(found.size());
    for (const auto& [bytes, op] : found) ops.push_back(op);
    return ops;
  }

  Status change_one_by_one() {
    std::size_t tries = 0;
    for (const OpId op : ops_with_other_reads()) {
      for (std::size_t i = 0; i < all_.of(op).size(); ++i) {
        if (i == best_[op]) continue;
        ChosenImplementations changed = best_;
        changed[op] = i;
        if (!all_.settle(changed) || changed == best_) continue;
        if (tries++ == kMostChanges || effort_.exhausted()) return {};
        REGEN_TRY(offer(std::move(changed)));
      }
    }
    return {};
  }

  Status offer(ChosenImplementations chosen) {
    if (known_ && (effort_.exhausted() || chosen == best_)) return {};
    REGEN_ASSIGN(const search::VariantView view, all_.view(chosen, &preferred_));
    const QuickWorth worth = quick_worth(problem_, view.graph(), effort_);
    if (known_ && worth >= worth_) return {};
    known_ = true;
    worth_ = worth;
    best_ = std::move(chosen);
    return {};
  }

  search::Problem problem_;
  const Graph& graph_;
  const Implementations& all_;
  const IdVector<OpId, VariantId>& preferred_;
  Effort& effort_;
  bool known_ = false;
  ChosenImplementations best_;
  QuickWorth worth_;
};

}  // namespace

QuickWorth quick_worth(const search::Problem& problem, const Graph& graph, Effort& effort) {
  const search::QuickPlan quick = search::quick_plan(problem, graph, effort);
  return {quick.cost(), quick.bound};
}

Result<ChosenImplementations> choose_implementations(const search::Problem& problem,
                                                     const Implementations& all,
                                                     const IdVector<OpId, VariantId>& preferred,
                                                     Effort& effort) {
  return QuickImplementations(problem, all, preferred, effort).best();
}

}  // namespace regen::published
