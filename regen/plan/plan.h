// A plan is a list of steps. docs/reference/plan-semantics.md says exactly what each one means; in
// short:
//
//   compute op [variant]  run it; what it reads is on the device, what it makes appears
//   offload tensor        start copying it to the host; it stays usable
//   release tensor        it leaves the device (after its offload or fetch, if one is under way)
//   fetch tensor          start copying it back; its bytes are taken at once
//
// Memory follows from the list alone; only time depends on speed.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/graph/graph.h"

namespace regen {

enum class StepKind : std::uint8_t { kCompute, kOffload, kRelease, kFetch };

std::string_view to_string(StepKind kind);

// Eight bytes: plans of millions of steps are common.
class Step {
 public:
  Step() = default;
  // `choice` counts from 0 among the variants of the op.
  static Step compute(OpId op, std::size_t choice = 0) {
    return {StepKind::kCompute, op.index(), choice};
  }
  static Step offload(TensorId t) { return {StepKind::kOffload, t.index(), 0}; }
  static Step release(TensorId t) { return {StepKind::kRelease, t.index(), 0}; }
  static Step fetch(TensorId t) { return {StepKind::kFetch, t.index(), 0}; }

  StepKind kind() const { return kind_; }
  OpId op() const { return OpId(subject_); }              // compute only
  TensorId tensor() const { return TensorId(subject_); }  // all but compute
  std::size_t choice() const { return choice_; }          // compute only
  VariantId variant(const Graph& graph) const { return graph.variants(op())[choice_]; }

  auto operator<=>(const Step&) const = default;

 private:
  Step(StepKind kind, std::size_t subject, std::size_t choice)
      : subject_(static_cast<std::uint32_t>(subject)),
        choice_(static_cast<std::uint16_t>(choice)),
        kind_(kind) {}

  std::uint32_t subject_ = 0;
  std::uint16_t choice_ = 0;
  StepKind kind_ = StepKind::kCompute;
};

struct Plan {
  std::string planner;            // the planner that made it, for people
  std::uint64_t fingerprint = 0;  // Graph::fingerprint() of the graph it is for
  std::vector<Step> steps;
  // One address for each allocation, in the order in which the steps make them: a compute
  // allocates, in order, each tensor it makes that is not on the device yet (except a first
  // output that takes over the storage of an overwritten input), then its workspace if it has
  // any; a fetch allocates its tensor. Fixed tensors lie outside this address space.
  std::optional<std::vector<Bytes>> addresses;

  bool operator==(const Plan&) const = default;
};

// "compute 3 'conv1'" or "release 7 'relu1'", for messages; safe for ids the graph lacks.
std::string describe(const Graph& graph, const Step& step);

}  // namespace regen
