// Small forward graphs by the arguments of their ops, for tests of walks over them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "regen/base/random.h"
#include "regen/graph/builder.h"

namespace regen::testing {

using Ids = std::vector<std::size_t>;
using Arguments = std::vector<Ids>;

template <typename Range>
Ids ids(const Range& ops) {
  Ids result;
  for (const auto op : ops) result.push_back(op.index());
  return result;
}

// Op i makes tensor i of one byte from the tensors arguments[i].
inline Graph forward_graph(const Arguments& arguments, Phase phase = Phase::kForward) {
  GraphBuilder builder("forward");
  for (const Ids& row : arguments) {
    std::vector<TensorId> inputs;
    for (std::size_t i : row) inputs.emplace_back(i);
    builder.add_simple_op("op", "op", phase, inputs, 1, TensorKind::kActivation, 1);
  }
  return std::move(builder).build().value();
}

inline Arguments chain(std::size_t n) {
  Arguments arguments(n);
  for (std::size_t i = 1; i < n; ++i) arguments[i] = {i - 1};
  return arguments;
}

// Mostly a chain, with some skips and, rarely, a new beginning.
inline Arguments random_arguments(Random& random, std::size_t n) {
  Arguments arguments(n);
  const bool splits = random.chance(0.2);
  for (std::size_t i = 1; i < n; ++i) {
    if (splits && random.chance(0.1)) continue;
    const auto last = static_cast<std::int64_t>(i) - 1;
    arguments[i].push_back(
        static_cast<std::size_t>(random.between(std::max<std::int64_t>(0, last - 2), last)));
    if (random.chance(0.3))
      arguments[i].push_back(static_cast<std::size_t>(random.between(0, last)));
  }
  return arguments;
}

// 0 -> 1 -> 3 -> 4 and 0 -> 2 -> 3.
inline const Arguments kDiamond = {{}, {0}, {0}, {1, 2}, {3}};

}  // namespace regen::testing
