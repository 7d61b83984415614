#include "regen/published/monet/monet_evaluator.h"

#include <algorithm>
#include <cmath>

namespace regen::published {
namespace {

class Evaluator {
 public:
  Evaluator(const MonetInstance& instance, const MonetSolution& solution, Kib budget,
            const MonetRules& rules)
      : instance_(instance),
        x_(solution),
        budget_(budget),
        rules_(rules),
        forward_(instance.loss + 1),
        stages_(instance.nodes.size() - instance.loss) {}

  MonetVerdict run(std::size_t begin, std::size_t end);
  std::size_t stages() const { return stages_; }

 private:
  const MonetNode& node(std::size_t id) const { return instance_.nodes[id]; }
  std::size_t backward(std::size_t t) const { return forward_ - 1 + t; }
  Kib ram(std::size_t id) const { return monet_kib(node(id).mem); }
  bool is_intermediate(std::size_t id) const { return node(id).kind == MonetKind::kIntermediate; }
  // Convolutions are chosen only where the instance lists them.
  const std::uint32_t* conv(std::size_t id) const {
    const auto found = instance_.conv_list.find(static_cast<std::uint32_t>(id));
    return found == instance_.conv_list.end() ? nullptr : &found->second;
  }
  bool overwrites(std::size_t id) const {
    return rules_.in_place && instance_.inplace_list.contains(static_cast<std::uint32_t>(id));
  }
  static bool reads(const std::vector<std::uint32_t>& list, std::size_t id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  }

  void require(bool holds, const char* what, std::size_t t, std::size_t i) {
    if (holds || !verdict_.violation.empty()) return;
    verdict_.violation =
        std::string(what) + ", stage " + std::to_string(t) + ", node " + std::to_string(i);
  }
  void require_memory(Kib bytes, const char* what, std::size_t t, std::size_t i) {
    verdict_.peak = std::max(verdict_.peak, bytes);
    require(bytes <= budget_, what, t, i);
  }

  void check_start(std::size_t t);
  void check_edges(std::size_t t);
  void check_in_place(std::size_t t);
  void check_convs(std::size_t t);
  void check_ablation(std::size_t t);
  void check_forward_memory(std::size_t t);
  void check_backward_memory(std::size_t t);
  Kib kept_for_backward(std::size_t t, std::size_t before) const;
  Kib forward_workspace(std::size_t t, std::size_t i) const;
  Kib backward_workspace(std::size_t t) const;
  void add_cost(std::size_t t);

  const MonetInstance& instance_;
  const MonetSolution& x_;
  Kib budget_;
  const MonetRules& rules_;
  std::size_t forward_, stages_;
  MonetVerdict verdict_;
};

void Evaluator::check_start(std::size_t t) {
  const std::size_t ways = t == 0 ? 1 : node(backward(t)).args.size();
  int chosen = 0;
  for (std::size_t p = 0; p < x_.m[t].size(); ++p) {
    chosen += x_.m[t][p];
    require(p < ways || x_.m[t][p] == 0, "an implementation that is not there", t, p);
  }
  require(chosen >= 1, "no implementation", t, backward(t));
  for (std::size_t i = 0; i < forward_; ++i) {
    if (t == 0) require(x_.s[0][i] == 0, "stored before the step", t, i);
    if (t == 0 && !is_intermediate(i)) require(x_.r[0][i] == 1, "not in the forward pass", t, i);
    require(x_.s[t + 1][i] <= x_.s[t][i] + x_.p[t][i], "stored from nowhere", t, i);
    if (is_intermediate(i)) {
      require(x_.r[t][i] <= x_.r[t][node(i).parent], "a by-product without its op", t, i);
    }
  }
}

void Evaluator::check_edges(std::size_t t) {
  for (const MonetEdge& edge : instance_.edges) {
    if (edge.to < forward_) {
      require(x_.r[t][edge.to] <= x_.r[t][edge.from] + x_.s[t][edge.from],
              "computed without its input", t, edge.to);
    } else if (edge.to == backward(t) && edge.from < forward_) {
      require(x_.m[t][edge.implementation] <= x_.p[t][edge.from] + x_.s[t + 1][edge.from],
              "backward without a forward tensor", t, edge.from);
    }
  }
}

void Evaluator::check_in_place(std::size_t t) {
  for (std::size_t i = 0; i < forward_; ++i) {
    require(x_.p[t][i] <= x_.r[t][i], "present but not computed", t, i);
    if (!rules_.in_place) require(x_.p[t][i] == x_.r[t][i], "computed but not present", t, i);
    require(x_.ip[t][i] <= x_.r[t][i], "in place but not computed", t, i);
    if (!overwrites(i)) {
      require(x_.ip[t][i] == 0, "in place against the list", t, i);
      continue;
    }
    if (is_intermediate(i)) continue;
    const std::size_t u = instance_.inplace_list.at(static_cast<std::uint32_t>(i));
    require(x_.p[t][u] >= x_.r[t][u] - 2 * x_.ip[t][i], "gone without being overwritten", t, u);
    require(x_.p[t][u] <= 2 - 2 * x_.ip[t][i], "present after being overwritten", t, u);
    require(x_.s[t + 1][u] <= 2 - 2 * x_.ip[t][i], "stored after being overwritten", t, u);
    for (const auto& made : node(i).intermediates) {
      const int both = x_.ip[t][i] + x_.r[t][made.node] - 1;
      require(x_.ip[t][made.node] >= both && x_.ip[t][made.node] <= x_.ip[t][i],
              "a by-product that is not in place with its op", t, made.node);
    }
  }
}

void Evaluator::check_convs(std::size_t t) {
  for (const auto& [id, k] : instance_.conv_list) {
    int chosen = 0;
    for (std::size_t c = 0; c < x_.rf[t][k].size(); ++c) {
      chosen += x_.rf[t][k][c];
      const bool works =
          c < node(id).first_run.ms.size() && monet_ticks(node(id).first_run.ms[c]) >= 0;
      require(works || x_.rf[t][k][c] == 0, "an algorithm that failed", t, id);
    }
    if (id < instance_.loss) {
      require(chosen >= x_.r[t][id], "a convolution without algorithm", t, id);
    } else {
      require(id == backward(t) ? chosen >= 1 : chosen == 0, "a convolution in the wrong stage", t,
              id);
    }
  }
}

void Evaluator::check_ablation(std::size_t t) {
  for (std::size_t i = 0; i < forward_; ++i) {
    if (t > 0) require(x_.r[t][i] == 0, "recomputed in the ablation", t, i);
    if (overwrites(i)) require(x_.ip[t][i] == x_.r[t][i], "not in place in the ablation", t, i);
  }
}

// What the coming backward op needs, has been passed and is not stored.
Kib Evaluator::kept_for_backward(std::size_t t, std::size_t before) const {
  Kib sum = 0;
  const auto& args = node(backward(t)).args;
  for (std::size_t p = 0; p < args.size(); ++p) {
    for (std::size_t i = 0; i < before; ++i) {
      if (reads(args[p], i)) sum += ram(i) * (x_.m[t][p] - x_.m[t][p] * x_.s[t + 1][i]);
    }
  }
  return sum;
}

Kib Evaluator::forward_workspace(std::size_t t, std::size_t i) const {
  const auto& workspaces = t == 0 ? node(i).first_run.workspace_mib : node(i).rerun.workspace_mib;
  if (const std::uint32_t* k = conv(i)) {
    Kib sum = 0;
    for (std::size_t c = 0; c < workspaces.size() && c < x_.rf[t][*k].size(); ++c) {
      sum += x_.rf[t][*k][c] * monet_workspace_kib(workspaces[c]);
    }
    return sum;
  }
  const Kib plain = monet_workspace_kib(workspaces[0]);
  if (!overwrites(i)) return x_.r[t][i] * plain;
  return x_.ip[t][i] * (monet_workspace_kib(node(i).in_place.workspace_mib[0]) - plain) +
         x_.r[t][i] * plain;
}

void Evaluator::check_forward_memory(std::size_t t) {
  const std::size_t b = backward(t);
  const Kib held = (t > 0 ? monet_kib(node(b).local_memory) : 0) +
                   (b > 0 ? monet_kib(node(b - 1).fixed_mem) : 0);
  for (std::size_t j = 0; j < forward_; ++j) {
    const Kib keep = kept_for_backward(t, j);
    Kib passing = held + keep;
    Kib computing = held + keep + forward_workspace(t, j) +
                    x_.r[t][j] * (ram(j) + monet_kib(node(j).local_memory));
    for (std::size_t i = 0; i < forward_; ++i) {
      const Kib stored = (i >= j ? x_.s[t][i] : x_.s[t + 1][i]) * ram(i);
      passing += stored;
      if (i != j && !reads(node(j).local_tensors, i)) computing += stored;
    }
    require_memory(passing, "over the budget while passing", t, j);
    require_memory(computing, "over the budget while computing", t, j);
  }
}

Kib Evaluator::backward_workspace(std::size_t t) const {
  const std::size_t b = backward(t);
  const auto& workspaces = node(b).first_run.workspace_mib;
  Kib sum = 0;
  if (const std::uint32_t* k = conv(b)) {
    for (std::size_t c = 0; c < workspaces.size() && c < x_.rf[t][*k].size(); ++c) {
      sum += x_.rf[t][*k][c] * monet_workspace_kib(workspaces[c]);
    }
    return sum;
  }
  for (std::size_t p = 0; p < node(b).args.size(); ++p) {
    sum += x_.m[t][p] * monet_workspace_kib(workspaces[p]);
  }
  return sum;
}

void Evaluator::check_backward_memory(std::size_t t) {
  const std::size_t b = backward(t);
  Kib sum = backward_workspace(t) + monet_kib(node(b).local_memory) + monet_kib(node(b).fixed_mem) +
            ram(b);
  for (std::size_t p = 0; p < node(b).args.size(); ++p) {
    for (std::size_t i = 0; i < forward_; ++i) {
      const int held = reads(node(b).args[p], i) ? 1 : x_.s[t + 1][i];
      sum += x_.m[t][p] * held * ram(i);
    }
  }
  require_memory(sum, "over the budget in the backward op", t, b);
}

void Evaluator::add_cost(std::size_t t) {
  for (std::size_t i = 0; i < forward_; ++i) {
    const auto& ms = t == 0 ? node(i).first_run.ms : node(i).rerun.ms;
    if (conv(i) == nullptr) verdict_.objective += x_.r[t][i] * monet_ticks(ms[0]);
    if (overwrites(i)) {
      verdict_.objective += x_.ip[t][i] * (monet_ticks(node(i).in_place.ms[0]) -
                                           monet_ticks(node(i).first_run.ms[0]));
    }
  }
  for (const auto& [id, k] : instance_.conv_list) {
    for (std::size_t c = 0; c < x_.rf[t][k].size() && c < node(id).first_run.ms.size(); ++c) {
      verdict_.objective += x_.rf[t][k][c] * monet_ticks(node(id).first_run.ms[c]);
    }
  }
  const std::size_t b = backward(t);
  if (t == 0 || conv(b) != nullptr) return;  // the loss is a forward node
  for (std::size_t p = 0; p < node(b).args.size(); ++p) {
    verdict_.objective += x_.m[t][p] * monet_ticks(node(b).first_run.ms[p]);
  }
}

MonetVerdict Evaluator::run(std::size_t begin, std::size_t end) {
  for (std::size_t t = begin; t < end; ++t) {
    check_start(t);
    check_edges(t);
    check_in_place(t);
    check_convs(t);
    if (rules_.ablation) check_ablation(t);
    check_forward_memory(t);
    if (t > 0) check_backward_memory(t);
    add_cost(t);
  }
  return verdict_;
}

}  // namespace

MonetVerdict evaluate_monet(const MonetInstance& instance, const MonetSolution& solution,
                            Bytes budget, const MonetRules& rules) {
  Evaluator evaluator(instance, solution, budget / 1024, rules);
  return evaluator.run(0, evaluator.stages());
}

MonetVerdict evaluate_monet_stage(const MonetInstance& instance, const MonetSolution& solution,
                                  std::size_t t, Bytes budget, const MonetRules& rules) {
  return Evaluator(instance, solution, budget / 1024, rules).run(t, t + 1);
}

MonetSolution empty_monet_solution(const MonetInstance& instance) {
  const std::size_t forward = instance.loss + 1;
  const std::size_t stages = instance.nodes.size() - instance.loss;
  std::size_t ways = 1;
  for (const MonetNode& node : instance.nodes) ways = std::max(ways, node.args.size());
  std::size_t convs = 0;
  for (const auto& [id, k] : instance.conv_list) convs = std::max<std::size_t>(convs, k + 1);
  const auto matrix = [](std::size_t rows, std::size_t columns) {
    return MonetMatrix(rows, std::vector<std::uint8_t>(columns));
  };
  MonetSolution solution;
  solution.r = solution.ip = solution.p = matrix(stages, forward);
  solution.s = matrix(stages + 1, forward);
  solution.m = matrix(stages, ways);
  solution.rf.assign(
      stages,
      matrix(convs, static_cast<std::size_t>(std::max<std::int64_t>(instance.num_conv_algos, 1))));
  return solution;
}

}  // namespace regen::published
