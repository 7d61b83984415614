#include "tests/support/plans/damage.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "tests/support/oracles/naive_interpreter.h"
#include "tests/support/plans/random_plan.h"

namespace regen::testing {

namespace {

using Attempt = std::optional<Damaged>;

// Calls try_at(i) for the numbers below `count`, from a random one on, until one succeeds.
template <typename TryAt>
Attempt first_of(std::size_t count, Random& random, TryAt try_at) {
  if (count == 0) return std::nullopt;
  const auto start =
      static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(count) - 1));
  for (std::size_t i = 0; i < count; ++i) {
    if (Attempt attempt = try_at((start + i) % count)) return attempt;
  }
  return std::nullopt;
}
template <typename TryAt>
Attempt any_step(const Sound& sound, Random& random, TryAt try_at) {
  return first_of(sound.steps().size(), random, try_at);
}
template <typename TryAt>
Attempt any_tensor(const Sound& sound, Random& random, TryAt try_at) {
  return first_of(sound.graph().num_tensors(), random,
                  [&](std::size_t i) { return try_at(TensorId(i)); });
}
template <typename TryAt>
Attempt any_op(const Sound& sound, Random& random, TryAt try_at) {
  return first_of(sound.graph().num_ops(), random, [&](std::size_t i) { return try_at(OpId(i)); });
}

Damaged inserted(const Sound& sound, std::size_t before, Step step) {
  Damaged result{sound.plan()};
  result.plan.steps.insert(result.plan.steps.begin() + static_cast<std::ptrdiff_t>(before), step);
  return result;
}
Damaged without(const Sound& sound, std::size_t step) {
  Damaged result{sound.plan()};
  result.plan.steps.erase(result.plan.steps.begin() + static_cast<std::ptrdiff_t>(step));
  return result;
}
Damaged truncated(const Sound& sound, std::size_t size) {
  Damaged result{sound.plan()};
  result.plan.steps.resize(size);
  return result;
}
std::size_t any_place(const Sound& sound, Random& random) {
  return static_cast<std::size_t>(
      random.between(0, static_cast<std::int64_t>(sound.steps().size())));
}

// --- steps that are missing or out of order -------------------------------------------------

Attempt drop_only_run(const Sound& sound, Random& random) {
  return any_op(sound, random, [&](OpId op) -> Attempt {
    if (sound.count_runs(op) != 1) return std::nullopt;
    return without(sound, sound.first_run(op));
  });
}

// Drops a step of this kind that brings a tensor which is read before anything else touches it.
Attempt drop_supply(const Sound& sound, Random& random, std::function<bool(std::size_t)> eligible) {
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    if (!eligible(i)) return std::nullopt;
    for (TensorId t : sound.graph().tensors()) {
      if (sound.on_device(t, i) || !sound.on_device(t, i + 1)) continue;
      const std::size_t next = sound.next_about(t, i + 1);
      if (next < sound.steps().size() && sound.reads(next, t)) return without(sound, i);
    }
    return std::nullopt;
  });
}
Attempt drop_rerun(const Sound& sound, Random& random) {
  return drop_supply(sound, random, [&](std::size_t i) {
    return sound.computes(i) && sound.first_run(sound.steps()[i].op()) < i;
  });
}
Attempt drop_fetch(const Sound& sound, Random& random) {
  return drop_supply(sound, random,
                     [&](std::size_t i) { return sound.steps()[i].kind() == StepKind::kFetch; });
}

// Only the first: without a later one, the copy before it may serve instead.
Attempt drop_first_offload(const Sound& sound, Random& random) {
  return any_tensor(sound, random, [&](TensorId t) -> Attempt {
    const auto& steps = sound.steps();
    const auto offload = std::find(steps.begin(), steps.end(), Step::offload(t));
    if (offload == steps.end()) return std::nullopt;
    const auto next = std::find_if(offload + 1, steps.end(), [&](Step step) {
      return step == Step::fetch(t) || step == Step::offload(t);
    });
    if (next == steps.end() || *next != Step::fetch(t)) return std::nullopt;
    return without(sound, static_cast<std::size_t>(offload - steps.begin()));
  });
}

Attempt drop_release_over_budget(const Sound& sound, Random& random) {
  const Bytes peak = validate(sound.graph(), sound.plan()).value().peak_bytes;
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    if (sound.steps()[i].kind() != StepKind::kRelease) return std::nullopt;
    const std::size_t next = sound.next_about(sound.steps()[i].tensor(), i + 1);
    if (next < sound.steps().size()) return std::nullopt;
    Damaged damaged = without(sound, i);
    damaged.limits.budget = peak;
    if (interpret(sound.graph(), damaged.plan, Link{1, 1, 2}).peak_bytes <= peak) {
      return std::nullopt;
    }
    return damaged;
  });
}

Attempt swap_producer_and_consumer(const Sound& sound, Random& random) {
  return any_op(sound, random, [&](OpId op) -> Attempt {
    const std::size_t consumer = sound.first_run(op);
    for (TensorId t : sound.graph().reads(sound.steps()[consumer].variant(sound.graph()))) {
      if (sound.graph().fixed(t)) continue;
      std::size_t producer = 0;
      while (!sound.makes(producer, t)) ++producer;
      Damaged damaged{sound.plan()};
      std::swap(damaged.plan.steps[producer], damaged.plan.steps[consumer]);
      return damaged;
    }
    return std::nullopt;
  });
}

Attempt truncate(const Sound& sound, Random& random) {
  return any_op(sound, random,
                [&](OpId op) -> Attempt { return truncated(sound, sound.first_run(op)); });
}

// --- releases, offloads and fetches that cannot be ------------------------------------------

Attempt release_twice(const Sound& sound, Random& random) {
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    if (sound.steps()[i].kind() != StepKind::kRelease) return std::nullopt;
    return inserted(sound, i + 1, sound.steps()[i]);
  });
}

Attempt release_before_use(const Sound& sound, Random& random) {
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    for (TensorId t : sound.graph().tensors()) {
      if (!sound.graph().fixed(t) && sound.reads(i, t)) {
        return inserted(sound, i, Step::release(t));
      }
    }
    return std::nullopt;
  });
}

Attempt release_output_at_end(const Sound& sound, Random& random) {
  return any_tensor(sound, random, [&](TensorId t) -> Attempt {
    if (sound.graph().kind(t) != TensorKind::kOutput) return std::nullopt;
    return inserted(sound, sound.steps().size(), Step::release(t));
  });
}

Attempt fetch_without_offload(const Sound& sound, Random& random) {
  return any_tensor(sound, random, [&](TensorId t) -> Attempt {
    if (sound.graph().fixed(t)) return std::nullopt;
    const std::size_t place = any_place(sound, random);
    const auto end = sound.steps().begin() + static_cast<std::ptrdiff_t>(place);
    const bool offloaded = std::find(sound.steps().begin(), end, Step::offload(t)) != end;
    if (offloaded || sound.on_device(t, place)) return std::nullopt;
    return inserted(sound, place, Step::fetch(t));
  });
}

Attempt fetch_while_resident(const Sound& sound, Random& random) {
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    if (sound.steps()[i].kind() != StepKind::kOffload) return std::nullopt;
    return inserted(sound, i + 1, Step::fetch(sound.steps()[i].tensor()));
  });
}

Attempt offload_absent(const Sound& sound, Random& random) {
  return any_tensor(sound, random, [&](TensorId t) -> Attempt {
    const std::size_t place = any_place(sound, random);
    if (sound.graph().fixed(t) || sound.on_device(t, place)) return std::nullopt;
    return inserted(sound, place, Step::offload(t));
  });
}

Attempt offload_after(const Sound& sound, Random& random, StepKind kind) {
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    if (sound.steps()[i].kind() != kind) return std::nullopt;
    return inserted(sound, i + 1, Step::offload(sound.steps()[i].tensor()));
  });
}
Attempt offload_twice(const Sound& sound, Random& random) {
  return offload_after(sound, random, StepKind::kOffload);
}
Attempt offload_right_after_fetch(const Sound& sound, Random& random) {
  return offload_after(sound, random, StepKind::kFetch);
}

Attempt with_fixed(const Sound& sound, Random& random, Step (*make)(TensorId)) {
  return any_tensor(sound, random, [&](TensorId t) -> Attempt {
    if (!sound.graph().fixed(t)) return std::nullopt;
    return inserted(sound, any_place(sound, random), make(t));
  });
}
Attempt release_fixed(const Sound& s, Random& r) {
  return with_fixed(s, r, Step::release);
}
Attempt offload_fixed(const Sound& s, Random& r) {
  return with_fixed(s, r, Step::offload);
}
Attempt fetch_fixed(const Sound& s, Random& r) {
  return with_fixed(s, r, Step::fetch);
}

// --- ids ------------------------------------------------------------------------------------

Attempt unknown_op(const Sound& sound, Random& random) {
  const std::size_t id = random.chance(0.5) ? sound.graph().num_ops() : 4'000'000'000;
  return inserted(sound, any_place(sound, random), Step::compute(OpId(id)));
}
Attempt unknown_tensor(const Sound& sound, Random& random) {
  const TensorId t(random.chance(0.5) ? sound.graph().num_tensors() : 4'000'000'000);
  const std::array<Step, 3> steps{Step::offload(t), Step::release(t), Step::fetch(t)};
  return inserted(sound, any_place(sound, random),
                  steps[static_cast<std::size_t>(random.between(0, 2))]);
}
Attempt unknown_variant(const Sound& sound, Random& random) {
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    if (!sound.computes(i)) return std::nullopt;
    const OpId op = sound.steps()[i].op();
    Damaged damaged{sound.plan()};
    damaged.plan.steps[i] = Step::compute(op, sound.graph().variants(op).size());
    return damaged;
  });
}
Attempt wrong_fingerprint(const Sound& sound, Random& random) {
  Damaged damaged{sound.plan()};
  damaged.plan.fingerprint =
      sound.graph().fingerprint() ^ (std::uint64_t{1} << random.between(0, 63));
  if (damaged.plan.fingerprint == 0) return std::nullopt;
  return damaged;
}

// --- runs that must not be ------------------------------------------------------------------

Attempt run_again(const Sound& sound, Random& random, bool update) {
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    if (!sound.computes(i)) return std::nullopt;
    const OpId op = sound.steps()[i].op();
    if (sound.graph().recomputable(op) || sound.graph().mutates(op).empty() == update) {
      return std::nullopt;
    }
    return inserted(sound, i + 1, sound.steps()[i]);
  });
}
Attempt rerun_not_recomputable(const Sound& s, Random& r) {
  return run_again(s, r, false);
}
Attempt rerun_update(const Sound& s, Random& r) {
  return run_again(s, r, true);
}

// Inserts a run of a reader of p at a place where only the order to the update forbids it.
Attempt read_on_wrong_side(const Sound& sound, Random& random, bool after) {
  const Graph& graph = sound.graph();
  return any_op(sound, random, [&](OpId update) -> Attempt {
    for (TensorId p : graph.mutates(update)) {
      for (OpId reader : graph.consumers(p)) {
        const bool wrong_side = after ? reader < update : reader > update;
        if (!wrong_side || !graph.recomputable(reader)) continue;
        const std::size_t place = after ? sound.first_run(update) + 1 : sound.first_run(update);
        const std::size_t choice = graph.variants(reader).size() - 1;
        const auto reads = graph.reads(graph.variants(reader)[choice]);
        if (std::find(reads.begin(), reads.end(), p) == reads.end()) continue;
        if (!sound.all_reads_on_device(graph.variants(reader)[choice], place)) continue;
        return inserted(sound, place, Step::compute(reader, choice));
      }
    }
    return std::nullopt;
  });
}
Attempt read_old_after_update(const Sound& s, Random& r) {
  return read_on_wrong_side(s, r, true);
}
Attempt read_new_before_update(const Sound& s, Random& r) {
  return read_on_wrong_side(s, r, false);
}

Attempt update_too_early(const Sound& sound, Random& random) {
  const Graph& graph = sound.graph();
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    if (!sound.computes(i)) return std::nullopt;
    for (OpId update : graph.ops()) {
      if (update <= sound.steps()[i].op() || sound.first_run(update) < i) continue;
      const auto mutates = graph.mutates(update);
      const auto read_here = [&](TensorId p) { return sound.reads(i, p); };
      if (std::none_of(mutates.begin(), mutates.end(), read_here)) continue;
      Damaged damaged{sound.plan()};
      const auto from = damaged.plan.steps.begin() + static_cast<std::ptrdiff_t>(i);
      const auto at =
          damaged.plan.steps.begin() + static_cast<std::ptrdiff_t>(sound.first_run(update));
      std::rotate(from, at, at + 1);
      return damaged;
    }
    return std::nullopt;
  });
}

Attempt overwrite_with_output_resident(const Sound& sound, Random& random) {
  const Graph& graph = sound.graph();
  return any_step(sound, random, [&](std::size_t i) -> Attempt {
    for (OpId op : graph.ops()) {
      if (!graph.recomputable(op) || sound.first_run(op) >= i) continue;
      for (std::size_t choice = 0; choice < graph.variants(op).size(); ++choice) {
        const VariantId v = graph.variants(op)[choice];
        if (!graph.overwrites(v).valid() || !sound.on_device(graph.makes(v)[0], i)) continue;
        if (!sound.all_reads_on_device(v, i)) continue;
        return inserted(sound, i, Step::compute(op, choice));
      }
    }
    return std::nullopt;
  });
}

// --- budgets --------------------------------------------------------------------------------

Attempt budget_too_small(const Sound& sound, Random& random) {
  Damaged damaged{sound.plan()};
  if (random.chance(0.5)) add_addresses(sound.graph(), random, damaged.plan);
  damaged.limits.budget = validate(sound.graph(), damaged.plan).value().peak_bytes - 1;
  return damaged;
}
Attempt host_budget_too_small(const Sound& sound, Random&) {
  Damaged damaged{sound.plan()};
  const Bytes peak = validate(sound.graph(), damaged.plan).value().host_peak_bytes;
  if (peak == 0) return std::nullopt;
  damaged.limits.host_budget = peak - 1;
  return damaged;
}

// --- addresses ------------------------------------------------------------------------------

Attempt change_addresses(const Sound& sound, Random& random,
                         const std::function<void(std::vector<Bytes>&)>& change) {
  Damaged damaged{sound.plan()};
  add_addresses(sound.graph(), random, damaged.plan);
  if (damaged.plan.addresses->empty()) return std::nullopt;
  change(*damaged.plan.addresses);
  return damaged;
}
Attempt too_few_addresses(const Sound& sound, Random& random) {
  return change_addresses(sound, random, [](auto& list) { list.pop_back(); });
}
Attempt too_many_addresses(const Sound& sound, Random& random) {
  return change_addresses(sound, random, [](auto& list) { list.push_back(0); });
}
Attempt set_any_address(const Sound& sound, Random& random, Bytes value) {
  return change_addresses(sound, random, [&](auto& list) {
    list[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(list.size()) - 1))] =
        value;
  });
}
Attempt negative_address(const Sound& sound, Random& random) {
  return set_any_address(sound, random, -random.between(1, 100));
}
Attempt enormous_address(const Sound& sound, Random& random) {
  return set_any_address(sound, random, std::numeric_limits<Bytes>::max() - random.between(0, 9));
}

// Moves an allocation onto the first byte of a tensor that its op reads.
Attempt overlapping_addresses(const Sound& sound, Random& random) {
  const Graph& graph = sound.graph();
  Damaged damaged{sound.plan()};
  add_addresses(graph, random, damaged.plan);
  std::vector<Bytes>& addresses = *damaged.plan.addresses;
  IdVector<TensorId, Bytes> place(graph.num_tensors(), 0);
  std::size_t next = 0;
  for (std::size_t i = 0; i < sound.steps().size(); ++i) {
    const Step& step = sound.steps()[i];
    if (step.kind() == StepKind::kFetch) place[step.tensor()] = addresses[next++];
    if (step.kind() != StepKind::kCompute) continue;
    const VariantId v = step.variant(graph);
    TensorId victim;
    for (TensorId t : graph.reads(v)) {
      if (!graph.fixed(t) && graph.bytes(t) > 0) victim = t;
    }
    const TensorId old = graph.overwrites(v);
    if (old.valid()) place[graph.makes(v)[0]] = place[old];
    for (TensorId t : graph.makes(v)) {
      if (sound.on_device(t, i) || (old.valid() && t == graph.makes(v)[0])) continue;
      if (victim.valid() && graph.bytes(t) > 0 && random.chance(0.5)) {
        addresses[next] = place[victim];
        return damaged;
      }
      place[t] = addresses[next++];
    }
    if (graph.workspace(v) > 0 && victim.valid() && random.chance(0.2)) {
      addresses[next] = place[victim] + graph.bytes(victim) - 1;
      return damaged;
    }
    if (graph.workspace(v) > 0) ++next;
  }
  return std::nullopt;
}

constexpr const char* kAbsent = "not on the device";
constexpr const char* kOnDevice = "is on the device already";
constexpr const char* kHostCopy = "has a host copy already";
constexpr const char* kFixed = "is fixed";
constexpr const char* kAbsentOrTurn = "not on the device|has changed it|is on the device already";

constexpr std::array kKinds{
    DamageKind{"drop_only_run", drop_only_run,
               "never runs|not on the device|has changed it|already"},
    DamageKind{"drop_rerun", drop_rerun, "not on the device|already"},
    DamageKind{"drop_fetch", drop_fetch, kAbsent},
    DamageKind{"drop_first_offload", drop_first_offload, "has no host copy"},
    DamageKind{"drop_release_over_budget", drop_release_over_budget, "over the budget"},
    DamageKind{"swap_producer_and_consumer", swap_producer_and_consumer, kAbsentOrTurn},
    DamageKind{"truncate", truncate, "never runs"},
    DamageKind{"release_twice", release_twice, kAbsent},
    DamageKind{"release_before_use", release_before_use, kAbsent},
    DamageKind{"release_output_at_end", release_output_at_end, "output tensor"},
    DamageKind{"fetch_without_offload", fetch_without_offload, "has no host copy"},
    DamageKind{"fetch_while_resident", fetch_while_resident, kOnDevice},
    DamageKind{"offload_absent", offload_absent, kAbsent},
    DamageKind{"offload_twice", offload_twice, kHostCopy},
    DamageKind{"offload_right_after_fetch", offload_right_after_fetch, kHostCopy},
    DamageKind{"release_fixed", release_fixed, kFixed},
    DamageKind{"offload_fixed", offload_fixed, kFixed},
    DamageKind{"fetch_fixed", fetch_fixed, kFixed},
    DamageKind{"unknown_op", unknown_op, "unknown op"},
    DamageKind{"unknown_tensor", unknown_tensor, "unknown tensor"},
    DamageKind{"unknown_variant", unknown_variant, "unknown variant"},
    DamageKind{"wrong_fingerprint", wrong_fingerprint, "another graph"},
    DamageKind{"rerun_not_recomputable", rerun_not_recomputable, "is not recomputable"},
    DamageKind{"rerun_update", rerun_update, "runs exactly once"},
    DamageKind{"read_old_after_update", read_old_after_update, "has changed it at step"},
    DamageKind{"read_new_before_update", read_new_before_update, "has changed it"},
    DamageKind{"update_too_early", update_too_early, kAbsentOrTurn},
    DamageKind{"overwrite_with_output_resident", overwrite_with_output_resident,
               "is on the device already|has changed it"},
    DamageKind{"budget_too_small", budget_too_small, "1 byte over the budget"},
    DamageKind{"host_budget_too_small", host_budget_too_small, "over the host budget"},
    DamageKind{"too_few_addresses", too_few_addresses, "has no address"},
    DamageKind{"too_many_addresses", too_many_addresses, "addresses"},
    DamageKind{"negative_address", negative_address, "is out of range"},
    DamageKind{"enormous_address", enormous_address, "is out of range"},
    DamageKind{"overlapping_addresses", overlapping_addresses, "overlaps"},
};

}  // namespace

std::span<const DamageKind> damage_kinds() {
  return kKinds;
}

}  // namespace regen::testing
