#include "regen/session/report.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <vector>

#include "regen/base/tolerance.h"
#include "regen/plan/validate.h"

namespace regen::session {
namespace {

// How many ops run otherwise than by default: in place of something they read, or by another
// algorithm.
std::size_t ops_in_other_variants(const Graph& graph, const Plan& plan, bool in_place) {
  std::set<OpId> ops;
  for (const Step& step : plan.steps) {
    if (step.kind() != StepKind::kCompute || step.choice() == 0) continue;
    if (graph.overwrites(step.variant(graph)).valid() == in_place) ops.insert(step.op());
  }
  return ops.size();
}

// The highest sum of what lives at once. The validator needs no link for it.
Bytes highest_live_bytes(const Graph& graph, Plan plan) {
  plan.addresses.reset();
  const auto validation = validate(graph, plan);
  return validation.ok() ? validation->peak_bytes : 0;
}

bool ends_forward_pass(const Graph& graph, OpId op) {
  return graph.phase(op) == Phase::kLoss || graph.phase(op) == Phase::kBackward;
}

// What a plan has on the device, tensor by tensor.
class LiveSet {
 public:
  explicit LiveSet(const Graph& graph) : graph_(graph), live_(graph.num_tensors(), false) {}

  void apply(const Step& step) {
    switch (step.kind()) {
      case StepKind::kCompute:
        run(step.variant(graph_));
        break;
      case StepKind::kRelease:
        set(step.tensor(), false);
        break;
      case StepKind::kFetch:
        set(step.tensor(), true);
        break;
      case StepKind::kOffload:
        break;
    }
  }

  KeptTensors kept() const { return kept_; }

 private:
  // A result that takes the place of an input leaves nothing of it.
  void run(VariantId variant) {
    if (graph_.overwrites(variant).valid()) set(graph_.overwrites(variant), false);
    for (const TensorId t : graph_.makes(variant)) set(t, true);
  }
  void set(TensorId tensor, bool live) {
    if (live_[tensor] == live) return;
    live_[tensor] = live;
    kept_.count += live ? 1 : -1;
    kept_.bytes += live ? graph_.bytes(tensor) : -graph_.bytes(tensor);
  }

  const Graph& graph_;
  IdVector<TensorId, bool> live_;
  KeptTensors kept_;
};

std::optional<KeptTensors> kept_to_backward(const Graph& graph, const Plan& plan) {
  LiveSet live(graph);
  for (const Step& step : plan.steps) {
    if (step.kind() == StepKind::kCompute && ends_forward_pass(graph, step.op())) {
      return live.kept();
    }
    live.apply(step);
  }
  return std::nullopt;
}

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string milliseconds(double seconds) {
  return formatted("%.3f ms", seconds * 1e3);
}

std::string budget_text(const RunReport& report) {
  if (!report.budget) return "none";
  std::string text = format_bytes(*report.budget);
  if (report.caller_bytes > 0) {
    text += ", of which " + format_bytes(report.caller_bytes) + " for what the caller holds";
  }
  return text;
}

std::string peak_text(const RunReport& report) {
  std::string text = format_bytes(report.plan.peak_bytes + report.caller_bytes) + " predicted";
  if (report.measured_peak) text += ", " + format_bytes(*report.measured_peak) + " measured";
  return text + "; unplanned " + format_bytes(report.unplanned_bytes + report.caller_bytes) +
         ", no plan below " + format_bytes(report.bound_bytes + report.caller_bytes);
}

std::string time_text(const RunReport& report) {
  const PlanReport& plan = report.plan;
  std::string text = milliseconds(plan.cost) + " predicted";
  if (report.measured_seconds) text += ", " + milliseconds(*report.measured_seconds) + " measured";
  return text + ", " + milliseconds(plan.base_cost) + " keeping everything (" +
         formatted("%+.2f %%", plan.overhead * 100) + "), proven at least " +
         milliseconds(plan.lower_bound);
}

std::string improvement_text(const Improvement& improvement, double cost) {
  const std::string when = improvement.before_step
                               ? "before step " + std::to_string(*improvement.before_step)
                               : "by an earlier process";
  return when + ": a search of " + formatted("%.1f s", improvement.search_seconds) +
         " beside the training found " + milliseconds(cost) + ", where the first plan has " +
         milliseconds(improvement.earlier_cost);
}

// Lines of a name and what is said of it.
class Lines {
 public:
  explicit Lines(std::string first) : text_(std::move(first)) {}

  void add(const std::string& name, const std::string& value) {
    text_ += "\n  " + name + std::string(12 - name.size(), ' ') + value;
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

void add_decisions(const PlanReport& plan, Lines& lines) {
  if (plan.kept) {
    lines.add("kept", std::to_string(plan.kept->count) + " tensors (" +
                          format_bytes(plan.kept->bytes) +
                          ") from the forward to the backward pass");
  }
  lines.add("recomputed", std::to_string(plan.recomputed) + " ops");
  lines.add("moved", format_bytes(plan.offloaded_bytes) + " to the host and back");
}

void add_search(const RunReport& report, Lines& lines) {
  const auto& improvement = report.plan.origin.improvement;
  if (improvement) {
    lines.add("improved", improvement_text(*improvement, report.plan.cost));
  } else if (report.searching) {
    lines.add("improved", "not yet: a search runs beside the training");
  }
}

void add_memory(const MemoryReport& memory, Lines& lines) {
  lines.add("arena",
            format_bytes(memory.arena_bytes) + ", host " + format_bytes(memory.host_bytes));
  if (memory.unforeseen == 0) return;
  lines.add("unforeseen",
            std::to_string(memory.unforeseen) + " allocations (" + memory.unforeseen_nodes + ")");
}

}  // namespace

PlanOrigin origin_of(const search::Outcome& outcome) {
  return {.planner = outcome.planner,
          .status = outcome.status,
          .lower_bound = outcome.lower_bound,
          .seconds = outcome.seconds,
          .work = outcome.work,
          .note = outcome.note};
}

bool PlanReport::proven_best() const {
  return origin.status == search::PlanStatus::kOptimal || at_most(cost, lower_bound);
}

PlanReport make_report(const Graph& graph, const Plan& plan, const Simulation& simulation,
                       const PlanOrigin& origin) {
  PlanReport report;
  report.origin = origin;
  report.cost = simulation.cost;
  report.base_cost = graph.base_cost();
  report.overhead = simulation.overhead;
  report.lower_bound = std::min(origin.lower_bound, simulation.cost);
  report.gap = simulation.cost > 0 ? std::max(0.0, 1 - report.lower_bound / simulation.cost) : 0;
  report.peak_bytes = simulation.peak_bytes;
  report.live_bytes = highest_live_bytes(graph, plan);
  report.host_peak_bytes = simulation.host_peak_bytes;
  report.offloaded_bytes = simulation.offloaded_bytes;
  report.recomputed = simulation.recomputed;
  report.steps = plan.steps.size();
  report.other_algorithms = ops_in_other_variants(graph, plan, false);
  report.in_place = ops_in_other_variants(graph, plan, true);
  report.kept = kept_to_backward(graph, plan);
  return report;
}

bool same_work(const PlanReport& one, const PlanReport& other) {
  return one.peak_bytes == other.peak_bytes && one.cost == other.cost && one.steps == other.steps &&
         one.recomputed == other.recomputed && one.offloaded_bytes == other.offloaded_bytes;
}

std::string to_text(const RunReport& report) {
  const PlanReport& plan = report.plan;
  Lines lines("plan by " + plan.origin.planner + " (" + std::string(to_string(plan.origin.status)) +
              "), " + std::to_string(plan.steps) + " steps");
  lines.add("budget", budget_text(report));
  lines.add("peak", peak_text(report));
  lines.add("time", time_text(report));
  add_decisions(plan, lines);
  add_search(report, lines);
  if (plan.in_place > 0) {
    lines.add("in place", std::to_string(plan.in_place) + " ops write over what they read last");
  }
  if (plan.other_algorithms > 0) {
    lines.add("algorithms",
              std::to_string(plan.other_algorithms) + " ops run otherwise than by default");
  }
  if (report.memory) add_memory(*report.memory, lines);
  return std::move(lines).text();
}

}  // namespace regen::session
