#include "regen/report/plan_json.h"

#include <cmath>
#include <set>

#include "regen/plan/explain.h"
#include "regen/report/boxes.h"
#include "regen/report/label.h"
#include "regen/report/layout.h"
#include "regen/report/module_totals.h"
#include "regen/simulate/simulate.h"

namespace regen::report {
namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// A power of ten, so that the whole step is between 1e8 and 1e10 ticks: whole numbers are short,
// and neighbours touch.
double tick_of(double cost) {
  if (!(cost > 0) || !std::isfinite(cost)) return 1;
  return std::pow(10.0, std::floor(std::log10(cost)) - 9);
}

class PlanJson {
 public:
  PlanJson(const Graph& graph, const Plan& plan, const ModuleTree& tree, const Facts& facts,
           const Simulation& simulation, const Layout& layout)
      : graph_(graph),
        plan_(plan),
        tree_(tree),
        facts_(facts),
        simulation_(simulation),
        layout_(layout),
        boxes_(boxes(graph, plan, layout.addresses)) {}

  Json make() const {
    return {{"title", label(facts_.title.empty() ? plan_.planner : facts_.title)},
            {"planner", label(plan_.planner)},
            {"summary", summary()},
            {"steps", steps()},
            {"layout", {{"of_plan", layout_.of_plan}, {"bytes", layout_.bytes}}},
            {"boxes", box_columns()},
            {"peak", peak()},
            {"modules", modules()},
            {"curve", curve()},
            {"islands", islands()},
            {"other_algorithms", ops_in_other_variants(false)},
            {"in_place", ops_in_other_variants(true)},
            {"unforeseen", labels(facts_.measured.unforeseen)}};
  }

 private:
  Bytes predicted_bytes() const { return simulation_.peak_bytes + facts_.caller_bytes; }

  Json summary() const {
    return {{"predicted_bytes", predicted_bytes()},
            {"budget_bytes", or_null(facts_.budget)},
            {"fits", facts_.budget ? Json(predicted_bytes() <= *facts_.budget) : Json(nullptr)},
            {"peak_bytes", simulation_.peak_bytes},
            {"activation_peak_bytes", simulation_.activation_peak_bytes},
            {"caller_bytes", facts_.caller_bytes},
            {"host_peak_bytes", simulation_.host_peak_bytes},
            {"offloaded_bytes", simulation_.offloaded_bytes},
            {"fetched_bytes", simulation_.fetched_bytes},
            {"peak_step", simulation_.peak_step},
            {"backward_step", backward_step(graph_, plan_)},
            {"steps", plan_.steps.size()},
            {"recomputed", simulation_.recomputed},
            {"cost", simulation_.cost},
            {"compute_cost", simulation_.compute_cost},
            {"wait_cost", simulation_.cost - simulation_.compute_cost},
            {"overhead", simulation_.overhead},
            {"lower_bound", or_null(facts_.lower_bound)},
            {"measured_bytes", or_null(facts_.measured.peak_bytes)},
            {"measured_seconds", or_null(facts_.measured.seconds)}};
  }

  Json steps() const {
    const double tick = tick_of(simulation_.cost);
    const auto ticks = [tick](double time) { return std::llround(time / tick); };
    std::string kinds;
    Json subjects = Json::array();
    Json choices = Json::object();
    Json starts = Json::array();
    Json ends = Json::array();
    Json device = Json::array();
    Json host = Json::array();
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      const StepRecord& record = simulation_.records[i];
      const bool runs = step.kind() == StepKind::kCompute;
      kinds += "corf"[static_cast<std::size_t>(step.kind())];
      subjects.push_back(runs ? step.op().index() : step.tensor().index());
      if (runs && step.choice() > 0) choices[std::to_string(i)] = variant_label(step);
      starts.push_back(ticks(record.start));
      ends.push_back(ticks(record.end));
      device.push_back(record.device_bytes);
      host.push_back(record.host_bytes);
    }
    return {{"tick", tick},    {"kind", kinds}, {"subject", subjects},    {"variant", choices},
            {"start", starts}, {"end", ends},   {"device_bytes", device}, {"host_bytes", host}};
  }

  std::string variant_label(const Step& step) const {
    const std::string& name = graph_.name(step.variant(graph_));
    return name.empty() ? std::to_string(step.choice()) : label(name);
  }

  Json box_columns() const {
    Json tensors = Json::array();
    Json ops = Json::array();
    Json origins = Json::array();
    Json from = Json::array();
    Json to = Json::array();
    Json allocations = Json::array();
    Json addresses = Json::array();
    Json bytes = Json::array();
    for (const Box& box : boxes_) {
      tensors.push_back(box.tensor.valid() ? Json(box.tensor.index()) : Json(nullptr));
      ops.push_back(box.op.index());
      origins.push_back(static_cast<int>(box.origin));
      from.push_back(box.from);
      to.push_back(box.to);
      allocations.push_back(box.allocation);
      addresses.push_back(box.address);
      bytes.push_back(box.bytes);
    }
    return {{"origins", {"first run", "recompute", "fetch"}},
            {"tensor", tensors},
            {"op", ops},
            {"origin", origins},
            {"from", from},
            {"to", to},
            {"allocation", allocations},
            {"address", addresses},
            {"bytes", bytes}};
  }

  Json peak() const {
    const Explanation why = explain(graph_, plan_);
    Json rows = Json::array();
    for (const LiveTensor& item : why.live) {
      rows.push_back({{"tensor", item.tensor.index()},
                      {"bytes", item.bytes},
                      {"origin", to_string(item.origin)},
                      {"made_step", item.made_step},
                      {"next_use_step", or_null(item.next_use_step)},
                      {"last_use_step", or_null(item.last_use_step)}});
    }
    return {{"step", why.peak_step},
            {"bytes", why.peak_bytes},
            {"fixed_bytes", why.fixed_bytes},
            {"workspace_bytes", why.workspace_bytes},
            {"unused_bytes", why.unused_bytes},
            {"live", rows}};
  }

  Json modules() const {
    const auto totals = module_totals(graph_, plan_, simulation_, tree_, boxes_);
    const auto column = [&](auto member) {
      Json values = Json::array();
      for (const ModuleTotals& row : totals) values.push_back(row.*member);
      return values;
    };
    Json added = Json::array();
    for (const ModuleTotals& row : totals) added.push_back(row.added_cost());
    return {{"ops", column(&ModuleTotals::ops)},
            {"parameter_bytes", column(&ModuleTotals::parameter_bytes)},
            {"kept_bytes", column(&ModuleTotals::kept_bytes)},
            {"peak_bytes", column(&ModuleTotals::peak_bytes)},
            {"recomputed", column(&ModuleTotals::recomputed)},
            {"recomputed_bytes", column(&ModuleTotals::recomputed_bytes)},
            {"moved_bytes", column(&ModuleTotals::moved_bytes)},
            {"cost", column(&ModuleTotals::cost)},
            {"recompute_cost", column(&ModuleTotals::recompute_cost)},
            {"wait_cost", column(&ModuleTotals::wait_cost)},
            {"variant_cost", column(&ModuleTotals::variant_cost)},
            {"added_cost", added}};
  }

  Json curve() const {
    Json points = Json::array();
    for (const CurvePoint& point : facts_.curve) {
      points.push_back({{"bytes", point.bytes},
                        {"cost", or_null(point.cost)},
                        {"lower_bound", or_null(point.lower_bound)}});
    }
    return points;
  }

  Json islands() const {
    Json rows = Json::array();
    for (const IslandFact& island : facts_.islands) {
      rows.push_back({{"name", label(island.name)},
                      {"source", label(island.source)},
                      {"reason", label(island.reason, 4 * kLongestLabel)},
                      {"held_bytes", island.held_bytes},
                      {"work_bytes", island.work_bytes},
                      {"seconds", island.seconds}});
    }
    return rows;
  }

  // Ops that run by another algorithm than by default, or in place of something that they read.
  Json ops_in_other_variants(bool in_place) const {
    std::set<OpId> ops;
    for (const Step& step : plan_.steps) {
      if (step.kind() != StepKind::kCompute || step.choice() == 0) continue;
      if (graph_.overwrites(step.variant(graph_)).valid() == in_place) ops.insert(step.op());
    }
    Json ids = Json::array();
    for (const OpId op : ops) ids.push_back(op.index());
    return ids;
  }

  static Json labels(const std::vector<std::string>& texts) {
    Json shown = Json::array();
    for (const std::string& text : texts) shown.push_back(label(text));
    return shown;
  }

  const Graph& graph_;
  const Plan& plan_;
  const ModuleTree& tree_;
  const Facts& facts_;
  const Simulation& simulation_;
  const Layout& layout_;
  const std::vector<Box> boxes_;
};

}  // namespace

Result<Json> plan_json(const Graph& graph, const Plan& plan, const ModuleTree& tree,
                       const Facts& facts) {
  REGEN_ASSIGN(const Simulation simulation,
               simulate(graph, plan, {.link = facts.link, .record = true}));
  REGEN_ASSIGN(const Layout layout, layout_of(graph, plan));
  return PlanJson(graph, plan, tree, facts, simulation, layout).make();
}

}  // namespace regen::report
