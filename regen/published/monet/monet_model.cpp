#include "regen/published/monet/monet_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace regen::published {
namespace {

// In modes without algorithm choice: the positions of IMPLICIT_PRECOMP_GEMM among the forward
// algorithms and of ALGO_1 among the backward ones.
constexpr std::size_t kDefaultForward = 4;
constexpr std::size_t kDefaultBackward = 1;

class Modeller {
 public:
  Modeller(const MonetInstance& instance, const MonetMode& mode)
      : instance_(instance), mode_(mode) {}

  Result<MonetModel> run(Bytes budget);

 private:
  const MonetNode& node(std::size_t id) const { return instance_.nodes[id]; }
  bool is_conv(std::uint32_t id) const { return instance_.conv_list.contains(id); }
  Error refuse(std::size_t id, const std::string& problem) const {
    return bad_input("nodes[" + std::to_string(id) + "]: " + problem);
  }
  Result<std::vector<MonetAlgorithm>> algorithms(std::uint32_t id, const MonetCosts& workspace,
                                                 std::size_t preferred) const;
  Status add_node(std::uint32_t id);
  void set_in_place(std::uint32_t id, MonetForward& forward) const;
  Status add_stage(std::uint32_t t);
  bool allowed(const MonetNode& backward, const std::vector<std::uint32_t>& args) const;
  Status add_implementations(std::uint32_t id, MonetStage& stage) const;
  void set_last_uses();

  const MonetInstance& instance_;
  const MonetMode& mode_;
  MonetModel model_;
};

// Those that did not fail and that no other beats in both ticks and workspace. Ticks are always
// those of the first run, as published.
Result<std::vector<MonetAlgorithm>> Modeller::algorithms(std::uint32_t id,
                                                         const MonetCosts& workspace,
                                                         std::size_t preferred) const {
  const MonetCosts& costs = node(id).first_run;
  std::vector<MonetAlgorithm> list;
  for (std::size_t c = 0; c < costs.ms.size(); ++c) {
    if (costs.ms[c] < 0 || static_cast<std::int64_t>(c) >= instance_.num_conv_algos) continue;
    list.push_back({static_cast<std::uint32_t>(c), monet_ticks(costs.ms[c]),
                    monet_workspace_kib(workspace.workspace_mib[c])});
  }
  if (list.empty()) return refuse(id, "every algorithm failed, expected one of 0 ms or more");
  std::sort(list.begin(), list.end(), [](const MonetAlgorithm& a, const MonetAlgorithm& b) {
    return std::tie(a.workspace, a.ticks, a.number) < std::tie(b.workspace, b.ticks, b.number);
  });
  if (!mode_.conv) {
    for (const MonetAlgorithm& each : list) {
      if (each.number == preferred) return std::vector{each};
    }
    return std::vector{list.front()};
  }
  std::vector<MonetAlgorithm> front;
  for (const MonetAlgorithm& each : list) {
    if (front.empty() || each.ticks < front.back().ticks) front.push_back(each);
  }
  return front;
}

void Modeller::set_in_place(std::uint32_t id, MonetForward& forward) const {
  const auto listed = instance_.inplace_list.find(id);
  if (!mode_.in_place || listed == instance_.inplace_list.end()) return;
  forward.in_place = true;
  if (!forward.parent) forward.overwrites = listed->second;
  forward.in_place_ticks =
      monet_ticks(node(id).in_place.ms[0]) - monet_ticks(node(id).first_run.ms[0]);
  forward.in_place_workspace = monet_workspace_kib(node(id).in_place.workspace_mib[0]);
}

Status Modeller::add_node(std::uint32_t id) {
  const MonetNode& from = node(id);
  MonetForward forward{.ram = monet_kib(from.mem), .local = monet_kib(from.local_memory)};
  for (std::uint32_t other : from.local_tensors) {
    if (other <= instance_.loss) forward.local_tensors.push_back(other);
  }
  for (const auto& made : from.intermediates) forward.intermediates.push_back(made.node);
  if (from.kind == MonetKind::kIntermediate) forward.parent = from.parent;
  forward.first_ticks = monet_ticks(from.first_run.ms[0]);
  forward.again_ticks = monet_ticks(from.rerun.ms[0]);
  forward.first_workspace = monet_workspace_kib(from.first_run.workspace_mib[0]);
  forward.again_workspace = monet_workspace_kib(from.rerun.workspace_mib[0]);
  set_in_place(id, forward);
  if (is_conv(id)) {
    if (forward.in_place) return refuse(id, "is a convolution and runs in place, expected one");
    forward.conv = true;
    forward.first_ticks = forward.again_ticks = 0;
    REGEN_ASSIGN(forward.first_algorithms, algorithms(id, from.first_run, kDefaultForward));
    REGEN_ASSIGN(forward.again_algorithms, algorithms(id, from.rerun, kDefaultForward));
  }
  // Then running it for nothing would pay, and no bound of ours would hold.
  if (forward.again_ticks + std::min<Ticks>(forward.in_place_ticks, 0) < 0 ||
      forward.first_ticks + std::min<Ticks>(forward.in_place_ticks, 0) < 0) {
    return refuse(id, "costs less than nothing when it runs in place or again");
  }
  model_.nodes.push_back(std::move(forward));
  return {};
}

// What an implementation reads says of which kind it is.
bool Modeller::allowed(const MonetNode& backward, const std::vector<std::uint32_t>& args) const {
  if (backward.kind != MonetKind::kBackward) return true;
  for (std::uint32_t arg : args) {
    if (arg >= instance_.loss) continue;
    const bool packed = node(arg).kind == MonetKind::kIntermediate;
    if (packed && !mode_.newnode) return false;
    if (!packed && arg == backward.fwd_id && !mode_.multiway) return false;
  }
  return true;
}

Status Modeller::add_implementations(std::uint32_t id, MonetStage& stage) const {
  const MonetNode& from = node(id);
  for (const bool restricted : {true, false}) {
    for (std::uint32_t p = 0; p < from.args.size(); ++p) {
      if (restricted && !allowed(from, from.args[p])) continue;
      MonetImplementation way{.number = p};
      for (std::uint32_t arg : from.args[p]) {
        if (arg <= instance_.loss) way.args.push_back(arg);
      }
      std::sort(way.args.begin(), way.args.end());
      way.args.erase(std::unique(way.args.begin(), way.args.end()), way.args.end());
      // An op with an algorithm to choose has one implementation and the algorithm's costs.
      if (!is_conv(id)) {
        if (p >= from.first_run.ms.size()) return refuse(id, "has fewer costs than lists of args");
        way.ticks = monet_ticks(from.first_run.ms[p]);
        way.workspace = monet_workspace_kib(from.first_run.workspace_mib[p]);
      }
      stage.implementations.push_back(std::move(way));
      // The only way there is stays, whatever the mode says of its kind.
      if (!restricted) return {};
    }
    if (!stage.implementations.empty()) return {};
  }
  return refuse(id, "has no list of args");
}

Status Modeller::add_stage(std::uint32_t t) {
  const std::uint32_t id = instance_.loss + t;
  const Kib local = t > 0 ? monet_kib(node(id).local_memory) : 0;
  MonetStage stage;
  stage.held_forward = local + (id > 0 ? monet_kib(node(id - 1).fixed_mem) : 0);
  stage.held_backward = local + monet_kib(node(id).fixed_mem) + monet_kib(node(id).mem);
  REGEN_TRY(add_implementations(id, stage));
  if (t == 0) {
    stage.implementations.resize(1);
    stage.implementations[0].ticks = 0;  // counted as the forward node that the loss is
    stage.implementations[0].workspace = 0;
  } else if (is_conv(id)) {
    REGEN_ASSIGN(stage.algorithms, algorithms(id, node(id).first_run, kDefaultBackward));
  }
  Ticks least = std::numeric_limits<Ticks>::max();
  for (const MonetImplementation& way : stage.implementations) least = std::min(least, way.ticks);
  stage.least_ticks = least + (stage.algorithms.empty() ? 0 : stage.algorithms.back().ticks);
  model_.stages.push_back(std::move(stage));
  return {};
}

// A stored copy serves a backward node that reads it, or a recomputation of what comes after it.
void Modeller::set_last_uses() {
  model_.last_use.assign(model_.num_nodes(), 0);
  for (std::uint32_t t = 0; t < model_.num_stages(); ++t) {
    for (const MonetImplementation& way : model_.stages[t].implementations) {
      for (std::uint32_t arg : way.args) model_.last_use[arg] = t;
    }
  }
  for (std::size_t id = model_.num_nodes(); id-- > 0;) {
    for (std::uint32_t input : model_.nodes[id].inputs) {
      model_.last_use[input] = std::max(model_.last_use[input], model_.last_use[id]);
    }
  }
}

Result<MonetModel> Modeller::run(Bytes budget) {
  model_.budget = budget / 1024;
  model_.checkpointing = mode_.checkpointing;
  for (std::uint32_t id = 0; id <= instance_.loss; ++id) REGEN_TRY(add_node(id));
  for (const MonetEdge& edge : instance_.edges) {
    if (edge.to <= instance_.loss) model_.nodes[edge.to].inputs.push_back(edge.from);
  }
  for (std::uint32_t t = 0; t + instance_.loss < instance_.nodes.size(); ++t) {
    REGEN_TRY(add_stage(t));
  }
  set_last_uses();
  return std::move(model_);
}

}  // namespace

Kib monet_kib(Bytes bytes) {
  return (bytes + 1023) / 1024;
}

Kib monet_workspace_kib(double mib) {
  return static_cast<Kib>(std::ceil(mib * 1024));
}

Ticks monet_ticks(double milliseconds) {
  return static_cast<Ticks>(std::ceil(100 * milliseconds));
}

Result<MonetModel> make_monet_model(const MonetInstance& instance, const MonetMode& mode,
                                    Bytes budget, const std::vector<char>& once) {
  REGEN_ASSIGN(MonetModel model, Modeller(instance, mode).run(budget));
  for (std::size_t i = 0; i < once.size(); ++i) model.nodes[i].once = once[i] != 0;
  return model;
}

}  // namespace regen::published
