#include "cli/pictures/schedule_picture.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace regen::cli {
namespace {

// Later letters win when several things fall into one cell.
constexpr std::string_view kPriority = ".hkmcr";
constexpr std::size_t kMaxCurvePoints = 4000;
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

class Grid {
 public:
  Grid(std::size_t size, std::size_t max_cells)
      : size_(size),
        cells_(std::min(size, max_cells)),
        rows_(cells_, std::string(cells_, kPriority[0])) {}

  // Marks an op in the stages [first, last].
  void mark(std::size_t op, std::size_t first, std::size_t last, char letter) {
    std::string& row = rows_[op * cells_ / size_];
    for (std::size_t i = first * cells_ / size_; i <= last * cells_ / size_; ++i) {
      if (kPriority.find(letter) > kPriority.find(row[i])) row[i] = letter;
    }
  }
  const std::vector<std::string>& rows() const { return rows_; }

 private:
  std::size_t size_;
  std::size_t cells_;
  std::vector<std::string> rows_;
};

// Follows the plan and fills the grid; remembers the stage of every step.
class Painter {
 public:
  Painter(const Graph& graph, const Plan& plan, std::size_t max_cells)
      : graph_(graph),
        plan_(plan),
        grid_(graph.num_ops(), max_cells),
        arrived_(graph.num_tensors(), kNone),
        left_(graph.num_tensors(), kNone),
        has_copy_(graph.num_tensors(), false),
        ran_(graph.num_ops(), false) {}

  void run() {
    for (const Step& step : plan_.steps) {
      // Releases after the first run of an op still belong to its stage.
      const bool begins = step.kind() == StepKind::kCompute || step.kind() == StepKind::kFetch;
      if (begins && stage_done_) {
        ++stage_;
        stage_done_ = false;
      }
      visit(step);
      stages_.push_back(stage_);
    }
    for (TensorId t : graph_.tensors()) {
      if (arrived_[t] != kNone) leave(t);
    }
  }

  const Grid& grid() const { return grid_; }
  const std::vector<std::size_t>& stages() const { return stages_; }

 private:
  void visit(const Step& step) {
    switch (step.kind()) {
      case StepKind::kCompute:
        return compute(step);
      case StepKind::kRelease:
        return leave(step.tensor());
      case StepKind::kOffload:
        has_copy_[step.tensor()] = true;
        return mark(step.tensor(), stage_, 'm');
      case StepKind::kFetch:
        if (left_[step.tensor()] != kNone) mark(step.tensor(), left_[step.tensor()], 'h');
        arrived_[step.tensor()] = stage_;
        return mark(step.tensor(), stage_, 'm');
    }
  }

  void compute(const Step& step) {
    const VariantId variant = step.variant(graph_);
    grid_.mark(step.op().index(), stage_, stage_, ran_[step.op()] ? 'r' : 'c');
    if (!ran_[step.op()]) stage_done_ = true;
    ran_[step.op()] = true;
    for (TensorId t : graph_.makes(variant)) {
      if (arrived_[t] == kNone) arrived_[t] = stage_;
    }
    if (const TensorId old = graph_.overwrites(variant); old.valid() && !graph_.fixed(old)) {
      leave(old);
    }
  }

  void leave(TensorId t) {
    mark(t, arrived_[t], 'k');
    arrived_[t] = kNone;
    left_[t] = has_copy_[t] ? stage_ : kNone;
  }

  // From `first` to now, in the row of the op that makes the tensor.
  void mark(TensorId t, std::size_t first, char letter) {
    grid_.mark(graph_.producer(t).index(), first, stage_, letter);
  }

  const Graph& graph_;
  const Plan& plan_;
  Grid grid_;
  std::size_t stage_ = 0;
  bool stage_done_ = false;
  std::vector<std::size_t> stages_;
  IdVector<TensorId, std::size_t> arrived_;  // stage in which it came to the device
  IdVector<TensorId, std::size_t> left_;     // stage in which it went, if the host has a copy
  IdVector<TensorId, bool> has_copy_;
  IdVector<OpId, bool> ran_;
};

// The steps of a stage share its width evenly; of many points in one bucket the highest stays.
Json memory_curve(const std::vector<std::size_t>& stages, const Simulation& simulation) {
  std::vector<std::size_t> first(stages.empty() ? 0 : stages.back() + 1, kNone);
  std::vector<std::size_t> count(first.size(), 0);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    first[stages[i]] = std::min(first[stages[i]], i);
    ++count[stages[i]];
  }
  Json curve = Json::array();
  const std::size_t bucket = stages.size() / kMaxCurvePoints + 1;
  std::size_t highest = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const bool begins = i % bucket == 0;
    const auto bytes = [&](std::size_t step) { return simulation.records[step].device_bytes; };
    if (begins || bytes(i) > bytes(highest)) highest = i;
    if ((i + 1) % bucket != 0 && i + 1 != stages.size()) continue;
    const std::size_t stage = stages[highest];
    const double inside = static_cast<double>(highest - first[stage]);
    curve.push_back(
        {static_cast<double>(stage) + inside / static_cast<double>(count[stage]), bytes(highest)});
  }
  return curve;
}

Json op_names(const Graph& graph) {
  constexpr std::size_t kMostNames = 80;
  Json names = Json::array();
  if (graph.num_ops() > kMostNames) return names;
  for (OpId op : graph.ops()) names.push_back(graph.name(op));
  return names;
}

Json phases(const Graph& graph) {
  Json starts = Json::array();
  for (OpId op : graph.ops()) {
    if (op.index() == 0 || graph.phase(op) != graph.phase(OpId(op.index() - 1))) {
      starts.push_back({to_string(graph.phase(op)), op.index()});
    }
  }
  return starts;
}

}  // namespace

Json schedule_picture(const Graph& graph, const Plan& plan, const Simulation& simulation,
                      std::optional<Bytes> budget, std::size_t max_cells) {
  Painter painter(graph, plan, max_cells);
  painter.run();
  return {{"title", graph.name()},
          {"planner", plan.planner},
          {"ops", graph.num_ops()},
          {"steps", plan.steps.size()},
          {"op_names", op_names(graph)},
          {"phases", phases(graph)},
          {"grid", painter.grid().rows()},
          {"memory", memory_curve(painter.stages(), simulation)},
          {"peak_bytes", simulation.peak_bytes},
          {"fixed_bytes", graph.fixed_bytes()},
          {"budget_bytes", budget ? Json(*budget) : Json(nullptr)},
          {"recomputed", simulation.recomputed},
          {"overhead", simulation.overhead}};
}

}  // namespace regen::cli
