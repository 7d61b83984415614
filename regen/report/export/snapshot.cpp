#include "regen/report/export/snapshot.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "regen/base/units.h"
#include "regen/report/boxes.h"
#include "regen/report/label.h"
#include "regen/report/layout.h"
#include "regen/report/modules.h"
#include "regen/simulate/simulate.h"

namespace regen::report {
namespace {

// Where the two segments begin: anywhere, but apart, and below what a double holds exactly.
constexpr Bytes kFixedAddress = Bytes{1} << 44;
constexpr Bytes kPlannedAddress = Bytes{1} << 45;
constexpr double kMicroseconds = 1e6;

struct Source {
  std::string file;
  std::int64_t line = 0;
};

// "model.py:31" in its parts; what has no number is a file.
Source parse_source(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {text, 0};
  const auto line = parse_int(std::string_view(text).substr(colon + 1));
  if (!line.ok()) return {text, 0};
  return {text.substr(0, colon), *line};
}

Json frame(const std::string& file, std::int64_t line, const std::string& name) {
  return {{"filename", file}, {"line", line}, {"name", name}};
}

class SnapshotMaker {
 public:
  SnapshotMaker(const Graph& graph, const Plan& plan, const Simulation& simulation,
                const Layout& layout)
      : graph_(graph),
        plan_(plan),
        simulation_(simulation),
        layout_(layout),
        tree_(module_tree(graph)),
        boxes_(boxes(graph, plan, layout.addresses)) {
    std::erase_if(boxes_, [](const Box& box) { return box.bytes == 0; });
  }

  Json make() const {
    return {{"segments", {fixed_segment(), planned_segment()}},
            {"device_traces", Json::array({events()})}};
  }

 private:
  Json frames_of(const Box& box) const {
    const Source source = parse_source(tree_.sources[box.op]);
    const std::string name = box.tensor.valid() ? label(graph_.name(box.tensor)) + ", " +
                                                      std::string(to_string(box.origin))
                                                : "workspace";
    const std::string module = label(tree_.paths[tree_.of_op[box.op]]);
    return Json::array({frame(source.file, source.line, name),
                        frame("module " + module, 0, label(graph_.name(box.op)))});
  }

  static Json block(Bytes bytes, bool used, Json frames) {
    return {{"size", bytes},
            {"requested_size", bytes},
            {"state", used ? "active_allocated" : "inactive"},
            {"frames", std::move(frames)}};
  }

  static Json segment(Bytes address, Bytes bytes, Bytes used, Json blocks) {
    return {{"device", 0},
            {"address", address},
            {"total_size", bytes},
            {"stream", 0},
            {"segment_type", "large"},
            {"allocated_size", used},
            {"active_size", used},
            {"requested_size", used},
            {"is_expandable", false},
            {"frames", Json::array()},
            {"blocks", std::move(blocks)}};
  }

  Json fixed_segment() const {
    Json blocks = Json::array();
    for (const TensorId t : graph_.tensors()) {
      if (!graph_.fixed(t) || graph_.bytes(t) == 0) continue;
      const std::string kind(to_string(graph_.kind(t)));
      blocks.push_back(block(graph_.bytes(t), true,
                             Json::array({frame("fixed " + kind, 0, label(graph_.name(t)))})));
    }
    const Bytes bytes = graph_.fixed_bytes();
    return segment(kFixedAddress, bytes, bytes, std::move(blocks));
  }

  // What is left at the end, with what lies between.
  Json planned_segment() const {
    std::vector<Box> left;
    std::ranges::copy_if(boxes_, std::back_inserter(left),
                         [&](const Box& box) { return box.to == plan_.steps.size(); });
    std::ranges::sort(left, {}, &Box::address);
    Json blocks = Json::array();
    Bytes end = 0;
    Bytes used = 0;
    for (const Box& box : left) {
      if (box.address > end) blocks.push_back(block(box.address - end, false, Json::array()));
      blocks.push_back(block(box.bytes, true, frames_of(box)));
      end = box.address + box.bytes;
      used += box.bytes;
    }
    if (end < layout_.bytes) blocks.push_back(block(layout_.bytes - end, false, Json::array()));
    return segment(kPlannedAddress, layout_.bytes, used, std::move(blocks));
  }

  // In each step first what leaves, then what appears.
  Json events() const {
    std::vector<const Box*> ends;
    for (const Box& box : boxes_) ends.push_back(&box);
    std::ranges::stable_sort(ends, {}, &Box::to);
    Json list = Json::array();
    auto next_end = ends.begin();
    auto next = boxes_.begin();
    for (std::size_t step = 0; step < plan_.steps.size(); ++step) {
      for (; next_end != ends.end() && (*next_end)->to == step; ++next_end) {
        list.push_back(event("free_requested", **next_end, step));
        list.push_back(event("free_completed", **next_end, step));
      }
      for (; next != boxes_.end() && next->from == step; ++next) {
        list.push_back(event("alloc", *next, step));
      }
    }
    return list;
  }

  Json event(const char* action, const Box& box, std::size_t step) const {
    return {{"action", action},
            {"addr", kPlannedAddress + box.address},
            {"size", box.bytes},
            {"stream", 0},
            {"time_us", std::llround(simulation_.records[step].start * kMicroseconds)},
            {"frames", frames_of(box)}};
  }

  const Graph& graph_;
  const Plan& plan_;
  const Simulation& simulation_;
  const Layout& layout_;
  const ModuleTree tree_;
  std::vector<Box> boxes_;
};

}  // namespace

Result<Json> memory_snapshot(const Graph& graph, const Plan& plan, const Link& link) {
  REGEN_ASSIGN(const Simulation simulation, simulate(graph, plan, {.link = link, .record = true}));
  REGEN_ASSIGN(const Layout layout, layout_of(graph, plan));
  return SnapshotMaker(graph, plan, simulation, layout).make();
}

}  // namespace regen::report
