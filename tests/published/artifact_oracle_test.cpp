// The sparse stage schedules against dense matrices: the published strategy, its R from S and its
// simulator are written here once more, word for word from their description, on T x T matrices.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "regen/base/random.h"
#include "regen/graph/builder.h"
#include "regen/models/zoo.h"
#include "regen/published/checkmate/artifact_accounting.h"
#include "regen/search/heuristics/chen.h"
#include "regen/search/planner.h"

namespace regen::published {
namespace {

using Matrix = std::vector<std::vector<char>>;

struct Nodes {
  std::size_t n = 0;  // forward nodes; T = 2n + 1
  std::vector<std::vector<std::size_t>> before, after;
  std::vector<Bytes> memory;
  std::vector<double> cost;
  std::size_t stages() const { return memory.size(); }
};

Nodes nodes_of(const Graph& graph) {
  Nodes nodes{.n = graph.num_ops() / 2};
  nodes.before.resize(graph.num_ops());
  nodes.after.resize(graph.num_ops());
  for (OpId op : graph.ops()) {
    nodes.memory.push_back(graph.bytes(graph.outputs(op)[0]));
    nodes.cost.push_back(graph.cost(graph.default_variant(op)));
    for (TensorId t : graph.inputs(op)) {
      nodes.before[op.index()].push_back(graph.producer(t).index());
      nodes.after[graph.producer(t).index()].push_back(op.index());
    }
  }
  return nodes;
}

Matrix fixed_checkpoints(const Nodes& g, const std::set<std::size_t>& checkpoints) {
  const std::size_t T = g.stages(), n = g.n;
  Matrix S(T, std::vector<char>(T, 0));
  for (std::size_t v = 0; v < T; ++v) {
    for (std::size_t u : g.before[v]) {
      S[v][u] = 1;
      for (std::size_t t = u + 1; u >= n && t <= v; ++t) S[t][u] = 1;
    }
  }
  for (std::size_t k : checkpoints) {
    for (std::size_t t = k + 1; t < T; ++t) S[t][k] = 1;
  }
  std::vector<std::size_t> bounds{0};
  bounds.insert(bounds.end(), checkpoints.begin(), checkpoints.end());
  bounds.push_back(n + 1);
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    const std::size_t a = bounds[s], b = bounds[s + 1];
    for (std::size_t x = a; x < b; ++x) {
      const std::size_t t = T - 1 - x;
      for (std::size_t i = a; i < std::min(t, b); ++i) S[t][i] = 1;
    }
    for (std::size_t t = a; t <= b; ++t) {
      for (std::size_t i = a; i < std::min(t, b); ++i) S[t][i] = 1;
      for (std::size_t i = a; i < b && i < n; ++i) {
        if (T - 1 - i < T - 1 - t) S[T - 1 - t][T - 1 - i] = 1;
      }
    }
  }
  return S;
}

Matrix r_from_s(const Nodes& g, const Matrix& S) {
  const std::size_t T = g.stages();
  Matrix R(T, std::vector<char>(T, 0));
  for (std::size_t t = 0; t < T; ++t) {
    R[t][t] = 1;
    for (std::size_t i = 0; t + 1 < T && i < T; ++i) {
      if (S[t + 1][i] && !S[t][i]) R[t][i] = 1;
    }
    for (std::size_t v = t + 1; v-- > 0;) {
      if (!R[t][v]) continue;
      for (std::size_t u : g.before[v]) {
        if (!S[t][u]) R[t][u] = 1;
      }
    }
  }
  return R;
}

struct Judgement {
  double cost = 0;
  Bytes peak = 0;
};

Judgement published_simulator(const Nodes& g, const Matrix& R, const Matrix& S) {
  const std::size_t T = g.stages();
  Judgement result;
  std::set<std::size_t> live;
  Bytes memory = 0;
  for (std::size_t t = 0; t < T; ++t) {
    const auto used_after = [&](std::size_t u, std::int64_t i) {
      if (t + 1 < T && S[t + 1][u]) return true;
      return std::ranges::any_of(
          g.after[u], [&](std::size_t v) { return static_cast<std::int64_t>(v) > i && R[t][v]; });
    };
    const auto release = [&](std::size_t u) {
      live.erase(u);
      memory -= g.memory[u];
    };
    for (std::size_t i : std::set<std::size_t>(live)) {
      if (!used_after(i, static_cast<std::int64_t>(i))) release(i);
    }
    for (std::size_t i = 0; i < T; ++i) {
      if (R[t][i]) {
        for (std::size_t u : g.before[i]) EXPECT_TRUE(live.contains(u));
        if (live.insert(i).second) {
          memory += g.memory[i];
          result.peak = std::max(result.peak, memory);
        }
        result.cost += g.cost[i];
      }
      for (std::size_t u : g.before[i]) {
        if (live.contains(u) && !used_after(u, static_cast<std::int64_t>(i))) release(u);
      }
      if (live.contains(i) && !used_after(i, static_cast<std::int64_t>(i))) release(i);
    }
  }
  return result;
}

void expect_equal(const Graph& graph, const std::vector<OpId>& checkpoints) {
  const Nodes nodes = nodes_of(graph);
  std::set<std::size_t> ids;
  for (OpId op : checkpoints) ids.insert(op.index());
  const Matrix S = fixed_checkpoints(nodes, ids);
  const Judgement expected = published_simulator(nodes, r_from_s(nodes, S), S);
  Effort effort;
  const search::Problem problem{.graph = &graph, .options = {.accounting = &artifact_accounting()}};
  const auto found = search::plan_checkpoints(problem, checkpoints, effort);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->simulation.cost, expected.cost) << graph.name();
  EXPECT_EQ(found->simulation.activation_peak_bytes, expected.peak) << graph.name();
}

// A random forward graph with the published backward pass: b(i) reads i, its consumers' values
// and its consumers' gradients.
Graph random_mirrored_graph(Random& random) {
  const auto n = static_cast<std::size_t>(random.between(2, 14));
  GraphBuilder builder("random");
  std::vector<TensorId> value(2 * n + 1);
  std::vector<std::vector<std::size_t>> consumers(n);
  std::vector<Bytes> bytes;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<TensorId> inputs;
    for (std::size_t j = 0; j < i; ++j) {
      if (j + 1 == i || random.chance(0.2)) {
        inputs.push_back(value[j]);
        consumers[j].push_back(i);
      }
    }
    bytes.push_back(random.between(0, 20));
    value[i] =
        builder.add_simple_op("f" + std::to_string(i), "f", Phase::kForward, inputs, bytes[i],
                              TensorKind::kActivation, static_cast<double>(random.between(0, 9)));
  }
  value[n] = builder.add_simple_op("loss", "loss", Phase::kLoss, {value[n - 1]}, 4,
                                   TensorKind::kActivation, 0);
  for (std::size_t i = n; i-- > 0;) {
    std::vector<TensorId> inputs{value[i]};
    for (std::size_t j : consumers[i]) inputs.push_back(value[j]);
    for (std::size_t j : consumers[i]) inputs.push_back(value[2 * n - j]);
    if (i + 1 == n) inputs.push_back(value[n]);
    value[2 * n - i] =
        builder.add_simple_op("b" + std::to_string(i), "b", Phase::kBackward, inputs, bytes[i],
                              TensorKind::kGradient, static_cast<double>(random.between(0, 9)));
  }
  return std::move(builder).build().value();
}

TEST(StageSchedule, EqualsDenseMatricesOnRandomGraphs) {
  Random random(7);
  for (int round = 0; round < 2000; ++round) {
    const Graph graph = random_mirrored_graph(random);
    std::vector<OpId> checkpoints;
    const double fraction = random.real();
    for (std::size_t i = 0; i < graph.num_ops() / 2; ++i) {
      if (random.chance(fraction)) checkpoints.emplace_back(i);
    }
    ASSERT_NO_FATAL_FAILURE(expect_equal(graph, checkpoints)) << "round " << round;
  }
}

TEST(StageSchedule, EqualsDenseMatricesOnRealNetworks) {
  for (const char* name : {"MobileNet", "vgg_unet", "segnet", "fcn_8", "ResNet50"}) {
    const auto graph = zoo_graph(name);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    const search::Problem problem{.graph = &*graph,
                                  .options = {.accounting = &artifact_accounting()}};
    for (const search::CandidateSet set :
         {search::CandidateSet::kArticulationPoints, search::CandidateSet::kAll}) {
      const auto candidates = search::candidate_checkpoints(problem, set);
      ASSERT_NO_FATAL_FAILURE(expect_equal(*graph, candidates));
      ASSERT_NO_FATAL_FAILURE(expect_equal(*graph, search::sqrt_checkpoints(problem, set)));
    }
  }
}

}  // namespace
}  // namespace regen::published
