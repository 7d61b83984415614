// What an executor runs: a plan turned into calls, copies and waits with nothing left to look up.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "regen/execute/device/device.h"
#include "regen/execute/placement/placement.h"
#include "regen/execute/placement/plan_memory.h"
#include "regen/execute/program/step_graph.h"
#include "regen/plan/plan.h"

namespace regen::execute {

// A call of an operator with its arguments in place.
struct ComputeInstruction {
  c10::OperatorHandle handle;
  NodeId node;
  torch::jit::Stack arguments;
  std::vector<PlacedSlot> slots;
  // Which result lies in which slot, in the order of the results.
  struct PlacedResult {
    std::uint32_t result = 0;
    std::uint32_t slot = 0;
  };
  std::vector<PlacedResult> placed;
  std::size_t choice = 0;  // of the node's variants
  // What is not as recorded is refused, so that the operator takes the algorithm of this variant.
  bool chooses = false;
  // Slots whose memory belongs to the caller and is known only when the step runs.
  struct External {
    std::uint32_t slot = 0;
    StorageId storage;
  };
  std::vector<External> external;
  // Results that come as numbers on the host: which result goes to which storage.
  struct HostResult {
    std::uint32_t result = 0;
    StorageId storage;
  };
  std::vector<HostResult> host_results;
  std::vector<std::uint32_t> scalar_arguments;  // positions that depend on the step's scalars
  std::int32_t random = -1;                     // which saved generator state, for random nodes
  bool rerun = false;
  bool shortened = false;  // the shorter call of a second run, which makes the first result only
  bool forward = true;     // some kernels keep more for a backward pass when gradients are on
};

// A copy on one of the two copy queues. It starts after all compute work before it, and after the
// copies it names.
struct CopyInstruction {
  Queue queue = Queue::kToHost;
  Bytes device_offset = 0;  // in the arena
  Bytes host_offset = 0;    // in the slab
  Bytes bytes = 0;
  std::vector<std::uint32_t> after;  // copies
};

enum class InstructionKind : std::uint8_t {
  kCompute,   // index: of computes
  kCopy,      // index: of copies
  kAwait,     // compute waits for the end of a copy; index: of copies
  kPoison,    // index: of poisons; debugging only
  kBoundary,  // outputs leave, their gradients arrive
};

struct Instruction {
  InstructionKind kind = InstructionKind::kCompute;
  std::uint32_t index = 0;
  std::uint32_t step = 0;  // of the plan
};

struct PoisonInstruction {
  Bytes offset = 0;  // in the arena
  Bytes bytes = 0;
};

// What lies at an address of the arena while the instructions [begin, end) are about to run: with
// all queues drained before such an instruction, these bytes are all that the step still needs.
// Workspace lives inside one instruction and is not among them.
struct ArenaLife {
  Bytes offset = 0;
  Bytes bytes = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct InstructionList {
  std::vector<Instruction> instructions;
  std::vector<ComputeInstruction> computes;
  std::vector<CopyInstruction> copies;
  std::vector<PoisonInstruction> poisons;
  std::vector<ArenaLife> lives;
  std::size_t num_random = 0;
  // Memory that is not planned: the caller's tensors and, where the step has two parts, its
  // results. Arguments refer to these storages; binding changes where they point.
  IdVector<StorageId, c10::Storage> bound;
  // Where results lie that are planned.
  IdVector<StorageId, c10::Storage> last;
};

struct CompileTarget {
  c10::Device device = c10::Device(c10::kCPU);
  std::byte* arena = nullptr;
  bool poison = false;
};

Result<InstructionList> make_instructions(const Recording& recording, const StepGraph& step,
                                          const Plan& plan, const PlanMemory& memory,
                                          const CompileTarget& target);

// A tensor over a storage with this layout.
at::Tensor make_view(const ValueSpec& value, const c10::Storage& storage);

}  // namespace regen::execute
