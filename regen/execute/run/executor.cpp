#include "regen/execute/run/executor.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "regen/execute/device/cpu/work_queue.h"
#include "regen/execute/device/quietly.h"
#include "regen/execute/placement/storage_memory.h"
#include "regen/execute/placement/uninitialized_memory.h"
#include "regen/execute/program/below_autograd.h"
#include "regen/execute/program/operator_call.h"
#include "regen/execute/run/warn_once.h"
#include "regen/plan/validate.h"

namespace regen::execute {

Result<std::unique_ptr<Executor>> Executor::compile(std::shared_ptr<const Recording> recording,
                                                    std::shared_ptr<const StepGraph> step,
                                                    const Plan& plan,
                                                    std::shared_ptr<ExecutionDevice> device,
                                                    const ExecutorOptions& options) {
  REGEN_TRY(check_alignment(plan, device->alignment()));
  const auto valid = validate(step->graph, plan);
  if (!valid.ok()) return valid.error();
  REGEN_ASSIGN(const PlanMemory memory, plan_memory(step->graph, plan, device->alignment()));

  std::unique_ptr<Executor> executor(new Executor);
  executor->recording_ = std::move(recording);
  executor->sizes_checked_ = !executor->recording_->remembered;
  executor->step_ = std::move(step);
  executor->device_ = std::move(device);
  executor->options_ = options;
  REGEN_TRY(executor->take_arena(
      std::max<Bytes>(1, memory.arena + executor->step_->resident_bytes + options.reserve)));
  if (memory.slab > 0) {
    REGEN_ASSIGN(executor->slab_, executor->device_->allocate_host(memory.slab));
  }
  executor->reserve_offset_ = memory.arena + executor->step_->resident_bytes;
  executor->reserve_ = std::make_unique<Reserve>(executor->arena_->at(executor->reserve_offset_),
                                                 options.reserve, executor->device_->alignment());
  const CompileTarget target{executor->device_->torch_device(),
                             static_cast<std::byte*>(executor->arena_->data()), options.debug};
  executor->plan_ = plan;
  executor->memory_ = memory;
  REGEN_ASSIGN(executor->list_,
               make_instructions(*executor->recording_, *executor->step_, plan, memory, target));
  for (const ComputeInstruction& call : executor->list_.computes) {
    executor->any_choice_ |= call.chooses;
    executor->other_choice_ |= call.chooses && call.choice > 0;
  }
  executor->seconds_ = predicted_seconds(executor->list_, executor->step_->graph, plan);
  executor->copies_.resize(executor->list_.copies.size());
  executor->reserve_generators();
  executor->kept_ = KeptContents(executor->recording_->program, executor->device_->torch_device());
  executor->kept_.use(executor->recording_->program, executor->list_.bound);
  const std::size_t storages = executor->recording_->program.storages.size();
  executor->external_.resize(storages);
  executor->given_.resize(storages, false);
  const Program& program = executor->recording_->program;
  for (std::size_t r = 0; r < program.results.size(); ++r) {
    executor->maker_.push_back(executor->completed_at(r));
  }
  executor->boundary_ = executor->list_.instructions.size();
  for (std::size_t i = 0; i < executor->list_.instructions.size(); ++i) {
    if (executor->list_.instructions[i].kind == InstructionKind::kBoundary) executor->boundary_ = i;
  }
  executor->cut_backward(kMaxBytes);
  return executor;
}

Status Executor::take_arena(Bytes bytes) {
  if (options_.arena) {
    if (options_.releasable || options_.arena->bytes() < bytes) {
      return bad_input("the other step's arena has " + format_grouped(options_.arena->bytes()) +
                       " bytes, expected " + format_grouped(bytes) +
                       " and one that stays where it is");
    }
    arena_ = std::move(options_.arena);
    return {};
  }
  REGEN_ASSIGN(MemoryBlock block,
               device_->allocate_arena(
                   bytes, options_.releasable ? ArenaKind::kReleasable : ArenaKind::kFixed));
  arena_ = std::make_shared<MemoryBlock>(std::move(block));
  return {};
}

Executor::~Executor() {
  // No queue may work on the memory that goes.
  if (!device_) return;
  quietly(failed_ ? Lost::kDrop : Lost::kPrint, [&] { device_->synchronize(); });
}

Status Executor::bind(StorageId id, const at::Tensor& tensor, std::int64_t offset) {
  const StorageSpec& spec = recording_->program.storages[id];
  c10::Storage& storage = list_.bound[id];
  if (!storage) return {};  // nothing reads it
  if (tensor.device().type() != storage.device().type()) {
    return bad_input("'" + spec.name + "' is on " + tensor.device().str() + ", expected " +
                     storage.device().str());
  }
  if (!has_memory(tensor.storage())) {
    return bad_input("'" + spec.name + "' has no memory now, expected state that has come back");
  }
  const Bytes before = offset * static_cast<Bytes>(tensor.element_size());
  const Bytes own = tensor.storage_offset() * static_cast<Bytes>(tensor.element_size());
  const Bytes behind = static_cast<Bytes>(tensor.storage().nbytes()) - own;
  // Inputs may be slices of something larger than the sample was; values stay inside the tensor.
  const bool exact = spec.role != Role::kInput && spec.role != Role::kTangent;
  if (exact && behind + before < spec.bytes) {
    return bad_input("'" + spec.name + "' has " + std::to_string(behind + before) +
                     " bytes, expected " + std::to_string(spec.bytes) +
                     " as when the step was captured");
  }
  char* data = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())) - before;
  if (exact && storage.data() != data) forget_repeated();
  storage.set_data_ptr_noswap(c10::DataPtr(data, tensor.device()));
  return {};
}

Status Executor::set_scalars(std::span<const double> scalars) {
  const Program& program = recording_->program;
  if (scalars.size() != program.scalars.size()) {
    return bad_input(std::to_string(scalars.size()) + " scalars, expected " +
                     std::to_string(program.scalars.size()));
  }
  if (std::ranges::equal(scalars, scalars_)) return {};
  const ArgumentSource source{{}, scalars, device_->torch_device()};
  for (ComputeInstruction& call : list_.computes) {
    const auto& schema = call.handle.schema();
    for (const std::uint32_t position : call.scalar_arguments) {
      const Json* json = argument_json(program.nodes[call.node], schema, position);
      REGEN_ASSIGN(call.arguments[position],
                   make_argument(*json, schema.arguments()[position], source));
    }
  }
  if (!scalars_.empty()) note_changed_scalars();
  scalars_.assign(scalars.begin(), scalars.end());
  return {};
}

Status Executor::check_bound() const {
  const auto& specs = recording_->program.storages;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const StorageSpec& spec = specs[StorageId(i)];
    // Gradients of outputs come later; what is computed is no concern of the caller.
    if (spec.role == Role::kTangent || spec.role == Role::kComputed || spec.bytes == 0) continue;
    const c10::Storage& storage = list_.bound[StorageId(i)];
    if (storage && storage.data() == nullptr) {
      return bad_input("'" + spec.name + "' has no memory, expected it to be bound to a tensor");
    }
  }
  return {};
}

Status Executor::run(std::size_t part) {
  if (part != 0 && part != next_part_) {
    return bad_input("part " + std::to_string(part) + " of the step cannot run now, expected " +
                     std::to_string(next_part_));
  }
  if (spilled())
    return bad_input("the step's memory was spilled, expected restore() before it goes on");
  if (part == 0) {
    REGEN_TRY(check_bound());
    REGEN_TRY(take_arena_back());
    first_drawn_ = -1;
    kept_.forget();
    shortage_.reset();
    misrecorded_ = false;
    settle_choices();
    repeated_.begin_step();
  }
  position_ = parts_[part].first;
  Status status;
  try {
    const auto stream = options_.capture ? device_->own_stream() : nullptr;
    device_->run([&] {
      const BelowAutograd below;
      const LeaveUninitialized no_filling;
      const WarnOnce warnings;
      if (part == 0) kept_.save();
      auto placement = PlacementScope::enter(device_->torch_device(), *reserve_, options_.beside);
      if (!placement.ok()) {
        status = placement.error();
        return;
      }
      placement_ = &*placement;
      const double begin = now_seconds();
      const Part& todo = parts_[part];
      if (gate_) {
        status = run_in_quanta(todo, *placement);
      } else {
        run_instructions(todo.first, todo.last, *placement);
      }
      if (host_timing_) host_time_.seconds += now_seconds() - begin;
      computed_ = device_->record(Queue::kCompute);
      note_deviations(*placement);
    });
  } catch (const std::exception& error) {
    const std::string text = error.what();
    quietly(Lost::kDrop, [&] { device_->synchronize(); });
    // A backtrace follows. Where the step had ended already, that reason is the first.
    if (status.ok()) status = bad_input(text.substr(0, text.find('\n')));
  }
  failed_ = !status.ok();
  next_part_ = status.ok() ? part + 1 : 0;
  if (status.ok()) {
    sizes_checked_ |= next_part_ == parts_.size();
    position_ = parts_[part].last;
    return status;
  }
  const std::string updates = updates_made();
  if (part != 0 || count_updates().first > 0) {
    shortage_.reset();
    misrecorded_ = false;
  }
  if (part == 0) {
    undo_draws();
    if (count_updates().first == 0) undo_changes();
  }
  position_ = 0;
  return Error{status.error().code, status.error().message + updates};
}

// The caller's tensors as they were before the step. After an error of the device itself nothing can
// be. The failed step may have had a stream of its own.
void Executor::undo_changes() {
  quietly(Lost::kDrop, [&] {
    device_->synchronize();
    device_->run([&] {
      const BelowAutograd below;
      kept_.put_back();
    });
    device_->synchronize();
  });
}

// A step without recorded alternatives runs as if none had ever been chosen; others refuse what
// the plan does not take.
void Executor::settle_choices() {
  if (!any_choice_) device_->forget_choices();
  if (other_choice_) device_->note_choices();
}

void Executor::run_instructions(std::size_t first, std::size_t last, PlacementScope& placement) {
  const bool whole =
      options_.capture && !options_.debug && !tracing_ && !host_timing_ && !before_each_;
  for (std::size_t i = first; i < last;) {
    position_ = i;
    if (before_each_) before_each_(list_.instructions[i].step);
    Stretch* stretch = whole ? repeated_.find(i) : nullptr;
    if (stretch != nullptr && run_whole(*stretch, placement)) {
      i = stretch->last;
    } else {
      run_instruction(list_.instructions[i++], placement);
    }
  }
  position_ = last;
}

void Executor::run_instruction(const Instruction& instruction, PlacementScope& placement) {
  switch (instruction.kind) {
    case InstructionKind::kCompute: {
      if (!tracing_) return run_compute(list_.computes[instruction.index], placement);
      const Event begin = device_->record_timed(Queue::kCompute);
      run_compute(list_.computes[instruction.index], placement);
      traced_.push_back({instruction.step, begin, device_->record_timed(Queue::kCompute)});
      return;
    }
    case InstructionKind::kCopy:
      return run_copy(instruction);
    case InstructionKind::kAwait:
      return device_->wait(Queue::kCompute, copies_[instruction.index]);
    case InstructionKind::kPoison:
      return poison(list_.poisons[instruction.index]);
    case InstructionKind::kBoundary:
      return;
  }
}

void Executor::run_copy(const Instruction& instruction) {
  const CopyInstruction& copy = list_.copies[instruction.index];
  device_->wait(copy.queue, device_->record(Queue::kCompute));
  for (const std::uint32_t earlier : copy.after) device_->wait(copy.queue, copies_[earlier]);
  void* on_device = arena_->at(copy.device_offset);
  void* on_host = slab_.at(copy.host_offset);
  const bool to_host = copy.queue == Queue::kToHost;
  const Event begin = tracing_ ? device_->record_timed(copy.queue) : Event();
  device_->copy(copy.queue, to_host ? on_host : on_device, to_host ? on_device : on_host,
                copy.bytes);
  if (tracing_) traced_.push_back({instruction.step, begin, device_->record_timed(copy.queue)});
  copies_[instruction.index] = device_->record(copy.queue);
}

void Executor::poison(const PoisonInstruction& range) {
  const ValueSpec bytes{StorageId(), c10::ScalarType::Byte, {range.bytes}, {1}, 0};
  const c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(range.bytes),
                             c10::DataPtr(arena_->at(range.offset), device_->torch_device()),
                             nullptr, false);
  make_view(bytes, storage).fill_(0xff);
}

void Executor::note_deviations(const PlacementScope& placement) {
  for (const Deviation& deviation : placement.deviations()) {
    if (deviations_.size() < 100) deviations_.push_back(deviation);
  }
}

at::Tensor Executor::result(std::size_t index) {
  const Program& program = recording_->program;
  const ValueSpec& value = program.values[program.results[index].value];
  const at::Tensor& memory = external_[value.storage];
  if (memory.defined()) {
    at::Tensor tensor = at::empty({0}, memory.options().dtype(value.dtype));
    tensor.set_(memory.storage(), value.offset, value.sizes, value.strides);
    // Two gradients must not share memory: accumulating into one would change the other.
    const bool gradient = program.results[index].kind == ResultKind::kGradient;
    const bool shared = gradient && given_[value.storage];
    given_[value.storage] = true;
    return shared ? tensor.clone() : tensor;
  }
  TORCH_CHECK(!spilled(), "regen: a result of a step whose memory was spilled, expected restore()");
  const c10::Storage& storage =
      list_.last[value.storage] ? list_.last[value.storage] : list_.bound[value.storage];
  if (!is_lent(index) || given_[value.storage]) return make_view(value, storage).clone();
  given_[value.storage] = true;
  const Bytes offset =
      static_cast<const std::byte*>(storage.data()) - static_cast<const std::byte*>(arena_->data());
  return make_view(value, lent_.lend(arena_, offset, static_cast<Bytes>(storage.nbytes()),
                                     device_->torch_device()));
}

bool Executor::is_lent(std::size_t result) const {
  const Program& program = recording_->program;
  return program.boundary.has_value() && program.results[result].kind == ResultKind::kGradient &&
         list_.last[program.values[program.results[result].value].storage];
}

std::vector<std::size_t> Executor::lent_results() const {
  std::vector<std::size_t> results;
  for (std::size_t r = 0; r < recording_->program.results.size(); ++r) {
    if (is_lent(r)) results.push_back(r);
  }
  return results;
}

// A step is about to begin.
Status Executor::take_arena_back() {
  close_room();
  const Bytes held = lent_.held_bytes() + room_bytes();
  if (held > 0) {
    return bad_input(format_grouped(held) +
                     " bytes of the last step's memory are still in use outside, expected them to "
                     "be moved or dropped "
                     "before the next step begins");
  }
  lent_.clear();
  room_.reset();
  for (const std::size_t result : lent_results()) {
    given_[recording_->program.values[recording_->program.results[result].value].storage] = false;
  }
  return {};
}

Status Executor::lend_room() {
  if (spilled() || options_.capture) return {};
  LentRoom::Ranges free;
  Bytes begin = 0;
  for (const auto& [first, last] : lent_.held_ranges()) {
    if (first > begin) free.emplace_back(begin, first);
    begin = std::max(begin, last);
  }
  if (reserve_offset_ > begin) free.emplace_back(begin, reserve_offset_);
  if (room_ && room_->held_bytes() > 0) return {};  // something stays there: not again
  REGEN_ASSIGN(room_, LentRoom::open(arena_, free, device_->torch_device(), device_->alignment()));
  return {};
}

void Executor::close_room() {
  if (room_) room_->close();
}

std::vector<c10::Storage> Executor::in_arena(const std::vector<at::Tensor>& tensors) const {
  std::vector<c10::Storage> storages = lent_.held();
  for (const at::Tensor& tensor : tensors) {
    if (!room_ || !tensor.has_storage() || !room_->holds(tensor.storage().data())) continue;
    const bool known = std::ranges::any_of(
        storages, [&](const c10::Storage& other) { return other.is_alias_of(tensor.storage()); });
    if (!known) storages.push_back(tensor.storage());
  }
  return storages;
}

void Executor::forget() {
  for (at::Tensor& memory : external_) memory = at::Tensor();
  next_part_ = position_ = 0;
}

std::vector<StepTime> Executor::take_trace() {
  std::vector<StepTime> times;
  if (traced_.empty()) return times;
  device_->synchronize();
  const Event origin = traced_.front().begin;
  for (const TracedStep& call : traced_) {
    times.push_back({call.step, device_->seconds_between(origin, call.begin),
                     device_->seconds_between(origin, call.end)});
  }
  traced_.clear();
  device_->forget_timed();
  return times;
}

}  // namespace regen::execute
