#include "tests/support/graphs/recurrent_graph.h"

#include <string>
#include <utility>
#include <vector>

#include "regen/graph/builder.h"

namespace regen::testing {
namespace {

constexpr Bytes kState = 4;
constexpr Bytes kGates = 16;
constexpr Bytes kWeight = 40;

// What the backward pass reads of a step.
struct CellValues {
  TensorId state_before;
  TensorId memory_before;
  TensorId gates;
  TensorId memory;
  TensorId bounded;
};

class RecurrentBuilder {
 public:
  explicit RecurrentBuilder(int steps) : builder_("recurrent"), steps_(steps) {
    weight_ = fixed("weight", kWeight, TensorKind::kParam);
    bias_ = fixed("bias", kState, TensorKind::kParam);
    input_ = fixed("input", kGates, TensorKind::kInput);
  }

  Graph build() && {
    TensorId state = add("state", Phase::kForward, {input_}, kState, 1);
    TensorId memory = add("memory", Phase::kForward, {input_}, kState, 1);
    for (int step = 0; step < steps_; ++step) forward(state, memory);
    TensorId gradient = add("loss", Phase::kLoss, {state}, kState, 1);
    while (!cells_.empty()) {
      gradient = backward(cells_.back(), gradient);
      cells_.pop_back();
    }
    update(weight_, of_weight_);
    update(bias_, of_bias_);
    return std::move(builder_).build().value();
  }

 private:
  TensorId fixed(const char* name, Bytes bytes, TensorKind kind) {
    return builder_.add_tensor({.name = name, .bytes = bytes, .kind = kind});
  }
  TensorId add(const std::string& name, Phase phase, std::vector<TensorId> inputs, Bytes bytes,
               double cost) {
    return builder_.add_simple_op(name + std::to_string(builder_.num_ops()), name, phase,
                                  std::move(inputs), bytes, TensorKind::kActivation, cost);
  }

  void forward(TensorId& state, TensorId& memory) {
    CellValues cell{.state_before = state, .memory_before = memory};
    const TensorId product = add("product", Phase::kForward, {weight_, bias_, state}, kGates, 20);
    cell.gates = add("gates", Phase::kForward, {product}, kGates, 10);
    const TensorId kept = add("kept", Phase::kForward, {cell.gates, memory}, kState, 2);
    memory = cell.memory = add("memory", Phase::kForward, {cell.gates, kept}, kState, 2);
    cell.bounded = add("bounded", Phase::kForward, {memory}, kState, 3);
    state = add("state", Phase::kForward, {cell.gates, cell.bounded}, kState, 2);
    cells_.push_back(cell);
  }

  TensorId backward(const CellValues& cell, TensorId gradient) {
    const auto add_to = [&](TensorId& sum, TensorId part, Bytes bytes) {
      sum = sum.valid() ? add("sum", Phase::kBackward, {sum, part}, bytes, 1) : part;
    };
    const TensorId of_gates =
        add("of_gates", Phase::kBackward,
            {gradient, cell.gates, cell.bounded, cell.memory, cell.memory_before}, kGates, 20);
    add_to(of_weight_,
           add("of_weight", Phase::kBackward, {of_gates, cell.state_before}, kWeight, 20), kWeight);
    add_to(of_bias_, add("of_bias", Phase::kBackward, {of_gates}, kState, 2), kState);
    return add("of_state", Phase::kBackward, {weight_, of_gates}, kState, 20);
  }

  void update(TensorId parameter, TensorId gradient) {
    builder_.add_op({.name = "update" + std::to_string(builder_.num_ops()),
                     .type = "update",
                     .phase = Phase::kUpdate,
                     .inputs = {parameter, gradient},
                     .mutates = {parameter},
                     .recomputable = false,
                     .variants = {{.cost = 1}}});
  }

  GraphBuilder builder_;
  const int steps_;
  TensorId weight_, bias_, input_;
  TensorId of_weight_, of_bias_;  // the sums so far
  std::vector<CellValues> cells_;
};

}  // namespace

Graph recurrent_graph(int steps) {
  return RecurrentBuilder(steps).build();
}

}  // namespace regen::testing
