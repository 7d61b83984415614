#include "regen/report/module_totals.h"

namespace regen::report {
namespace {

class TotalsMaker {
 public:
  TotalsMaker(const Graph& graph, const Plan& plan, const Simulation& simulation,
              const ModuleTree& tree)
      : graph_(graph),
        plan_(plan),
        simulation_(simulation),
        tree_(tree),
        totals_(tree.size()),
        ran_(graph.num_ops(), false) {}

  IdVector<ModuleId, ModuleTotals> make(std::span<const Box> boxes) && {
    for (const OpId op : graph_.ops()) ++totals_[tree_.of_op[op]].ops;
    for (const TensorId t : graph_.tensors()) {
      if (graph_.kind(t) == TensorKind::kParam) {
        totals_[tree_.of_tensor[t]].parameter_bytes += graph_.bytes(t);
      }
    }
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) visit(i);
    totals_[tree_.root()].wait_cost += simulation_.cost - clock_;  // for the last copies
    add_boxes(boxes);
    add_to_parents();
    return std::move(totals_);
  }

 private:
  void visit(std::size_t index) {
    const Step& step = plan_.steps[index];
    const StepRecord& record = simulation_.records[index];
    switch (step.kind()) {
      case StepKind::kCompute: {
        ModuleTotals& totals = totals_[tree_.of_op[step.op()]];
        totals.wait_cost += record.start - clock_;
        run(step, totals);
        clock_ = record.end;
        return;
      }
      case StepKind::kRelease:
        totals_[tree_.of_tensor[step.tensor()]].wait_cost += record.end - clock_;
        clock_ = record.end;
        return;
      case StepKind::kOffload:
      case StepKind::kFetch:
        totals_[tree_.of_tensor[step.tensor()]].moved_bytes += graph_.bytes(step.tensor());
        return;
    }
  }

  void run(const Step& step, ModuleTotals& totals) {
    const VariantId variant = step.variant(graph_);
    if (ran_[step.op()]) {
      ++totals.recomputed;
      totals.cost += graph_.rerun_cost(variant);
      totals.recompute_cost += graph_.rerun_cost(variant);
    } else {
      totals.cost += graph_.cost(variant);
      totals.variant_cost += graph_.cost(variant) - graph_.cost(graph_.default_variant(step.op()));
    }
    ran_[step.op()] = true;
  }

  void add_boxes(std::span<const Box> boxes) {
    const std::size_t backward = backward_step(graph_, plan_);
    for (const Box& box : boxes) {
      ModuleTotals& totals = totals_[tree_.of_op[box.op]];
      const auto lives = [&](std::size_t step) { return box.from <= step && step < box.to; };
      if (lives(simulation_.peak_step)) totals.peak_bytes += box.bytes;
      if (!box.tensor.valid()) continue;
      // What the first backward op itself makes is not kept for it.
      if (backward < plan_.steps.size() && box.from < backward && lives(backward)) {
        totals.kept_bytes += box.bytes;
      }
      if (box.origin == Provenance::kRecompute) totals.recomputed_bytes += box.bytes;
    }
  }

  void add_to_parents() {
    for (std::size_t i = totals_.size(); i-- > 1;) {
      totals_[tree_.parents[ModuleId(i)]].add(totals_[ModuleId(i)]);
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  const Simulation& simulation_;
  const ModuleTree& tree_;
  IdVector<ModuleId, ModuleTotals> totals_;
  IdVector<OpId, bool> ran_;
  double clock_ = 0;  // of the compute queue
};

}  // namespace

void ModuleTotals::add(const ModuleTotals& other) {
  ops += other.ops;
  parameter_bytes += other.parameter_bytes;
  kept_bytes += other.kept_bytes;
  peak_bytes += other.peak_bytes;
  recomputed += other.recomputed;
  recomputed_bytes += other.recomputed_bytes;
  moved_bytes += other.moved_bytes;
  cost += other.cost;
  recompute_cost += other.recompute_cost;
  wait_cost += other.wait_cost;
  variant_cost += other.variant_cost;
}

IdVector<ModuleId, ModuleTotals> module_totals(const Graph& graph, const Plan& plan,
                                               const Simulation& simulation, const ModuleTree& tree,
                                               std::span<const Box> boxes) {
  return TotalsMaker(graph, plan, simulation, tree).make(boxes);
}

std::size_t backward_step(const Graph& graph, const Plan& plan) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (step.kind() != StepKind::kCompute) continue;
    const Phase phase = graph.phase(step.op());
    if (phase == Phase::kLoss || phase == Phase::kBackward) return i;
  }
  return plan.steps.size();
}

}  // namespace regen::report
