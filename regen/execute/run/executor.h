// Runs a recorded step under a plan: a flat list of instructions, compiled once, over one device
// arena and one host slab, each allocation of each operator at its planned address.
//
// What must hold, and where it is made sure:
//   - a copy to the host starts after its source was made     (to-host queue waits for compute)
//   - its source is not reused before the copy has ended      (release: compute waits for to-host)
//   - a fetch does not write where compute still reads        (to-device queue waits for compute)
//   - a fetched tensor is not read before it is there         (compute waits for to-device)
// Where a plan takes another algorithm than the default one, the operator's first call makes the
// choice: requests that are not those of the planned variant are refused until it comes to that
// algorithm, which the library then remembers for the thread that runs operators. So a choice
// needs no call and no memory of its own.
//
// Values of random ops are drawn once; a second run replays the generator. Operators run below
// autograd and autocast: both have left their traces in the program.
//
// A step is run in parts. Without a boundary there is one; with one, the forward part is the
// first, and the backward part may be cut where gradients are complete.
//
// With a gate a step gives way between two quanta of work (quanta.h) and goes on exactly there:
// nothing is run again, so that an update can be neither lost nor made twice. What is on
// the device at a time is bounded (IssuedWork): the next job shares it with no more than that.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "regen/base/preemption_gate.h"
#include "regen/execute/device/device.h"
#include "regen/execute/placement/lent_results.h"
#include "regen/execute/placement/lent_room.h"
#include "regen/execute/placement/packed_copy.h"
#include "regen/execute/placement/reserve.h"
#include "regen/execute/program/step_graph.h"
#include "regen/execute/run/generator.h"
#include "regen/execute/run/instructions.h"
#include "regen/execute/run/kept_contents.h"
#include "regen/execute/run/quanta.h"
#include "regen/execute/run/repeated_work.h"
#include "regen/execute/run/step_sizes.h"
#include "regen/plan/plan.h"

namespace regen::execute {

struct ExecutorOptions {
  // Room at the end of the arena for allocations that were not foreseen; inside the budget.
  Bytes reserve = 0;
  // Bytes of the budget that are not in use. When the reserve is full, unforeseen allocations may take
  // so many of them from torch's own allocator.
  Bytes beside = 0;
  // Fill released memory with bytes that make nonsense of any value, and check after each call
  // that its results lie where the plan says.
  bool debug = false;
  // The arena's memory can be given back while the step is paused or between steps: spill().
  bool releasable = false;
  // Stretches that are the same in every step are captured and launched as a whole. The step must
  // have been recorded with the same choice.
  bool capture = false;
  // Of another step that never runs at the same time: taken instead of an own one, and refused if it
  // is too small.
  std::shared_ptr<MemoryBlock> arena = nullptr;
};

// When a step of the plan ran on the device, in seconds since the first traced one began: a compute
// on its queue, an offload or fetch on the queue of copies.
struct StepTime {
  std::size_t step = 0;
  double begin = 0;
  double end = 0;
};

// An operator that failed because memory was refused that its recording did not foresee: all of its
// requests that no slot was for.
struct Shortage {
  NodeId node;
  std::vector<Bytes> requests;
  Bytes held =
      0;  // of an island: what it has to hold for its backward pass; 0: what it has is enough
};

// Where the host's time went: in the list of instructions as a whole, and inside the operators.
// The rest is what the executor itself takes.
struct HostTime {
  double seconds = 0;
  double call_seconds = 0;
  std::size_t calls = 0;
};

class Executor {
 public:
  // The plan is refused unless it is valid for the graph and has addresses that are multiples of
  // the device's alignment. Takes the arena and the slab at once: fails if they cannot be had.
  static Result<std::unique_ptr<Executor>> compile(std::shared_ptr<const Recording> recording,
                                                   std::shared_ptr<const StepGraph> step,
                                                   const Plan& plan,
                                                   std::shared_ptr<ExecutionDevice> device,
                                                   const ExecutorOptions& options = {});
  ~Executor();

  // The memory of a storage that the caller brings; may change from step to step. The tensor's
  // first element is element `offset` of the storage.
  Status bind(StorageId id, const at::Tensor& tensor, std::int64_t offset = 0);
  Status set_scalars(std::span<const double> scalars);

  // Cuts the backward part where about `bytes` of gradients are complete.
  void cut_backward(Bytes bytes);
  std::size_t num_parts() const { return parts_.size(); }
  // The program's results that are complete after this part and were not before.
  const std::vector<std::size_t>& results_of(std::size_t part) const {
    return parts_[part].results;
  }

  // Storages that the caller brings and that this part or a later one reads.
  std::vector<StorageId> storages_read_from(std::size_t part) const;

  // From now on asks the gate before each quantum of work, and has at most `quantum_seconds` of
  // predicted work, or an op or two, on the device then; none: never. Not while a part runs.
  void set_gate(std::shared_ptr<Gate> gate, double quantum_seconds = kQuantumSeconds);
  // How often a step has given way in the middle of a part, or at its beginning.
  std::size_t num_pauses() const { return pauses_; }

  // Parts run in order; running the first begins a new step. After an error the next step starts
  // afresh, and after one in the first part the generators are as they were before. The error says
  // how many updates the failed step had made: none, and after one in the first part whatever was
  // bound is as before; some, and only a checkpoint helps.
  Status run(std::size_t part);
  // A result of a part that has run in this step. With a boundary its memory is the caller's own
  // from now on, or, where gradients are lent, until the next step begins; else it is a copy.
  at::Tensor result(std::size_t index);
  // The program's results that are lent.
  std::vector<std::size_t> lent_results() const;
  // Between two steps: what the caller still has of them. The next step is refused while it has any.
  Bytes lent_bytes() const { return lent_.held_bytes(); }
  // Between two steps: all of the arena that is free serves what this thread asks torch for, until it is
  // closed or a step begins.
  Status lend_room();
  void close_room();
  Bytes room_bytes() const { return room_ ? room_->held_bytes() : 0; }
  // What the caller has of the arena: lent results, and of these tensors those that lie in lent room.
  std::vector<c10::Storage> in_arena(const std::vector<at::Tensor>& tensors) const;
  // Why the last run of the first part failed, if it was for lack of unforeseen bytes and before the
  // first update: nothing has changed then, and the step may be run again with more memory.
  const std::optional<Shortage>& shortage() const { return shortage_; }
  // After the first part of a step failed: an operator did not do what a file of measurements says,
  // and nothing has changed that matters to the caller.
  bool misrecorded() const { return misrecorded_; }
  // The same of any part, where something may have changed.
  bool believed_a_lie() const { return believed_a_lie_; }
  // From the next part on, in place of ExecutorOptions::beside.
  void set_beside(Bytes bytes) { options_.beside = bytes; }
  // Lets go of what was bound and of results that were not taken.
  void forget();

  // Gives the arena's memory back to the device: what the rest of the step needs goes to one block
  // of pinned host memory, the rest is dropped. Between two parts, or before any instruction of the
  // part that runs (on its thread). Returns the bytes that the device has again, 0 if it had them
  // before. When it fails, nothing has changed.
  Result<Bytes> spill();
  // Takes it again, at the same addresses, so that the step goes on in place. An error of code
  // kLimit: there is no room now; nothing has changed, and it may be tried again.
  Status restore();
  bool spilled() const { return !arena_->present(); }
  // What spill() would copy now, and at the worst instruction of a step.
  Bytes live_bytes() const;
  Bytes largest_live_bytes() const;
  // Takes the host memory for the worst spill ahead of time: pinning it is slow.
  Status prepare_spill();

  // The step for tensors of other sizes, none larger than planned: the same calls in the same order
  // at the same addresses. Known by a number of the caller's choice; the least recently used go when
  // there are too many. Between two steps.
  bool knows_sizes(std::uint64_t number) const {
    return sizes_in_use_ == number || other_sizes_.contains(number);
  }
  Status add_sizes(std::uint64_t number, const StepSizes& sizes);
  // kPlannedSizes: those of the plan. What was bound has to be bound again, and scalars set.
  void use_sizes(std::uint64_t number);
  static constexpr std::uint64_t kPlannedSizes = 0;

  // For tests: called before each instruction with the step of the plan that it belongs to.
  void before_each_instruction(std::function<void(std::size_t step)> call) {
    before_each_ = std::move(call);
  }

  Bytes arena_bytes() const { return arena_->bytes(); }
  const std::shared_ptr<MemoryBlock>& arena() const { return arena_; }
  Bytes host_bytes() const { return slab_.bytes(); }
  // Allocations that were not as recorded, since the executor was made.
  const std::vector<Deviation>& deviations() const { return deviations_; }
  // Stretches of the step that the device is given as a whole.
  const RepeatedWork& repeated() const { return repeated_; }

  void set_trace(bool on) { tracing_ = on; }
  // Of the parts run since the last call, in the plan's order; releases take no time.
  std::vector<StepTime> take_trace();

  void set_host_timing(bool on) { host_timing_ = on; }
  // Of the parts run since the last call.
  HostTime take_host_time() { return std::exchange(host_time_, {}); }

 private:
  struct Part {
    std::size_t first = 0;  // instructions
    std::size_t last = 0;
    std::vector<std::size_t> results;
    std::vector<std::size_t> quanta;  // their first instructions; empty without a gate
  };

  // The instructions for sizes that are not in use.
  struct OtherSizes {
    std::shared_ptr<const Recording> recording;
    InstructionList list;
    bool checked = false;  // a whole step has run
    std::uint64_t last_use = 0;
  };

  Executor() = default;
  Status take_arena(Bytes bytes);
  void forget_least_used_sizes();
  void make_parts(const std::vector<std::size_t>& cuts);
  std::size_t completed_at(std::size_t result) const;
  bool is_lent(std::size_t result) const;
  Status take_arena_back();
  void cut_quanta_of(Part& part) const;
  Status check_bound() const;
  void find_repeated();
  void run_instructions(std::size_t first, std::size_t last, PlacementScope& placement);
  void run_instruction(const Instruction& instruction, PlacementScope& placement);
  bool run_whole(Stretch& stretch, const PlacementScope& placement);
  void forget_repeated();
  void note_changed_scalars();
  Status run_in_quanta(const Part& part, PlacementScope& placement);
  // False: the gate has closed before there was room.
  bool await_room_for(double seconds, const Gate* gate);
  Status pause();
  std::string updates_made() const;
  std::pair<std::size_t, std::size_t> count_updates() const;
  void undo_draws();
  void undo_changes();
  void reserve_generators();
  void renew(GeneratorState& state);
  void run_compute(ComputeInstruction& call, PlacementScope& placement);
  void call_operator(ComputeInstruction& call, PlacementScope& placement);
  void settle_choices();
  void take_external(ComputeInstruction& call);
  void run_copy(const Instruction& instruction);
  void poison(const PoisonInstruction& range);
  void take_host_results(const ComputeInstruction& call, const std::vector<at::Tensor>& results);
  // Every result looks as the program says.
  void check_layouts(const ComputeInstruction& call, const std::vector<at::Tensor>& results);
  // Every result that has a slot is in it.
  void check_places(const ComputeInstruction& call, const std::vector<at::Tensor>& results) const;
  bool results_in_place(const ComputeInstruction& call) const;
  void move_results(const ComputeInstruction& call, const std::vector<at::Tensor>& results) const;
  void note_deviations(const PlacementScope& placement);
  std::vector<MemoryRange> live_ranges(std::size_t position) const;
  Bytes merge_gap() const;
  Status take_spill_memory(Bytes bytes);

  std::shared_ptr<const Recording> recording_;
  std::shared_ptr<const StepGraph> step_;
  std::shared_ptr<ExecutionDevice> device_;
  ExecutorOptions options_;
  std::shared_ptr<MemoryBlock> arena_;
  Plan plan_;
  PlanMemory memory_;
  MemoryBlock slab_;
  MemoryBlock spill_memory_;  // grows, and is kept for the next time
  std::vector<MemoryRange> spilled_;
  std::unique_ptr<Reserve> reserve_;
  Bytes reserve_offset_ = 0;  // in the arena
  InstructionList list_;
  std::vector<Part> parts_;
  std::vector<double> scalars_;     // as last set
  std::vector<std::size_t> maker_;  // of each program result: the instruction that completes it
  std::size_t boundary_ = 0;        // its instruction, or their number
  std::size_t next_part_ = 0;
  std::size_t position_ = 0;     // the instruction that runs next, of the step under way
  Event computed_;               // the end of the last part that ran
  std::vector<double> seconds_;  // predicted, of each instruction
  std::shared_ptr<Gate> gate_;
  double quantum_seconds_ = kQuantumSeconds;
  IssuedWork issued_;
  std::deque<Event> quantum_ends_;  // of what is issued
  std::size_t pauses_ = 0;
  bool any_choice_ = false;    // some operator has several algorithms to run with
  bool other_choice_ = false;  // some operator is made to take another one than by default

  // Of the step under way.
  torch::jit::Stack stack_;
  PlacementScope* placement_ = nullptr;
  std::vector<Event> copies_;  // the ends of copies
  std::vector<GeneratorState> generators_;
  std::int32_t first_drawn_ = -1;  // of these: the state at the step's first draw
  KeptContents kept_;
  std::optional<Shortage> shortage_;
  bool misrecorded_ = false;
  bool believed_a_lie_ = false;
  bool failed_ = false;  // the part that ran last: its error is the one that counts
  IdVector<StorageId, at::Tensor> external_;  // memory of results, as bytes
  IdVector<StorageId, bool> given_;           // to the caller
  LentResults lent_;
  std::shared_ptr<LentRoom> room_;
  std::vector<Deviation> deviations_;
  RepeatedWork repeated_;
  int scalar_changes_ = 0;
  std::uint64_t sizes_in_use_ = kPlannedSizes;
  bool sizes_checked_ = true;
  std::uint64_t uses_ = 0;
  std::map<std::uint64_t, OtherSizes> other_sizes_;  // all but those in use
  bool tracing_ = false;
  struct TracedStep {
    std::size_t step;
    Event begin;
    Event end;
  };
  std::vector<TracedStep> traced_;
  bool host_timing_ = false;
  HostTime host_time_;
  std::function<void(std::size_t)> before_each_;
};

}  // namespace regen::execute
