#include "regen/execute/record/record.h"

#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "regen/base/progress/progress.h"
#include "regen/execute/placement/uninitialized_memory.h"
#include "regen/execute/program/call_arguments.h"
#include "regen/execute/program/operator_call.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/program/overwriting.h"
#include "regen/execute/program/program_values.h"
#include "regen/execute/record/call_measurement.h"
#include "regen/execute/record/record_check.h"
#include "regen/execute/run/generator.h"
#include "regen/plan/pack/pack.h"

namespace regen::execute {
namespace {

// What torch says goes on about backends, builds and backtraces.
std::string first_sentence(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.substr(0, line.find(". "));
}

// Bytes of an island's pool over what it took for the sample: sizes change with values, and first fit
// leaves gaps. The same as islands.MARGIN in Python for what they hold.
constexpr double kIslandMargin = 1.25;

class Recorder {
 public:
  Recorder(const Program& program, ExecutionDevice& device, const RecordOptions& options)
      : device_(device), options_(options) {
    recording_.program = program;
  }

  Result<Recording> run() {
    Program& program = recording_.program;
    warm_up_libraries();
    const Program captured = program;
    options_.sample = [this, ask = options_.sample](StorageId storage) {
      if (!ask) return at::Tensor();
      const auto before = captured_storages_.find(storage);
      return ask(before == captured_storages_.end() ? storage : before->second);
    };
    forget_computed_storages();
    recording_.nodes.resize(program.nodes.size());
    Progress progress({.stage = "measure", .pieces = "ops", .total = program.nodes.size()});
    for (std::size_t n = 0; n < program.nodes.size(); ++n, progress.advance()) {
      if (options_.interrupt != nullptr && *options_.interrupt) {
        return limit_reached("interrupted while op " + std::to_string(n) + " of " +
                             std::to_string(program.nodes.size()) + " was measured");
      }
      REGEN_ASSIGN(const CallRecord call, call_record(NodeId(n)));
      REGEN_TRY(apply(NodeId(n), call));
      for (const ValueId value : program.nodes[NodeId(n)].outputs) {
        if (!value.valid()) continue;
        captured_storages_.try_emplace(program.values[value].storage,
                                       captured.values[value].storage);
      }
    }
    return std::move(recording_);
  }

 private:
  // What libraries keep for good (the workspace of cuBLAS) is taken now, from torch, and not by
  // the first call that is served at planned addresses.
  void warm_up_libraries() const {
    if (device_.torch_device().is_cpu()) return;
    const at::Tensor a = at::ones({64, 64}, at::TensorOptions().device(device_.torch_device()));
    at::addmm(a.select(0, 0), a, at::mm(a, a));
    at::bmm(a.unsqueeze(0), a.unsqueeze(0));
  }

  // Storages that nodes make are made anew, as the device has them, and get new ids; the old ones
  // stay behind without bytes or values, so that the ids of all others keep their meaning.
  void forget_computed_storages() {
    Program& program = recording_.program;
    for (ValueSpec& value : program.values) {
      if (program.storages[value.storage].role == Role::kComputed) value.storage = StorageId();
    }
    for (StorageSpec& storage : program.storages) {
      if (storage.role == Role::kComputed) storage = {"", Role::kComputed, 0, ""};
    }
  }

  Result<CallRecord> call_record(NodeId id) {
    const Node& node = recording_.program.nodes[id];
    const CallArguments arguments(recording_.program, node);
    const std::string key = arguments.key();
    RecordCache own;  // what depends on contents is known only here, and now
    RecordCache& shared = options_.cache != nullptr ? *options_.cache : own_cache_;
    RecordCache& cache = depends_on_contents(node) ? own : shared;
    if (const CallRecord* known = find(cache, key, id, arguments)) {
      note_caps(arguments, *known);
      return *known;
    }
    try {
      const CallMeasurement measurement(recording_.program, device_, options_);
      REGEN_ASSIGN(CallRecord call, measurement.of(id, arguments, caps_for(arguments)));
      settle_doubts(call);
      cache.insert(key, call);
      note_caps(arguments, call);
      return call;
    } catch (const std::exception& error) {
      return bad_input(describe(recording_.program, id) + ": " + first_sentence(error.what()));
    }
  }

  // What is known of the call, says all that is asked for, and is of this call.
  const CallRecord* find(RecordCache& cache, const std::string& key, NodeId id,
                         const CallArguments& arguments) {
    const CallRecord* known = cache.find(key);
    if (known == nullptr || !complete(*known)) return nullptr;
    if (cache.measured_here(key)) return known;
    const Status status = check_record(*known, recording_.program, id, arguments, device_);
    if (status.ok()) {
      cache.note_used(key);
      recording_.remembered = true;
      return known;
    }
    cache.reject(key);
    doubted_.emplace(Doubted{*known, status.error()});
    return nullptr;
  }

  // A record that could not be checked, and turns out to be as measured now, was no lie.
  void settle_doubts(const CallRecord& measured) {
    const auto doubted = std::exchange(doubted_, std::nullopt);
    if (!doubted || !options_.on_distrust) return;
    const CallRecord& record = doubted->record;
    const bool same = record.results == measured.results &&
                      record.allocations == measured.allocations &&
                      record.overwritable == measured.overwritable &&
                      record.shorter_seconds.has_value() == measured.shorter_seconds.has_value();
    if (!same) options_.on_distrust(doubted->why);
  }

  // Whether what a call allocates depends on what is in its arguments: selections by masks.
  bool depends_on_contents(const Node& node) const {
    static constexpr std::array<std::string_view, 6> kSelecting = {
        "aten::index",           "aten::index_put",
        "aten::_index_put_impl", "aten::_unsafe_index_put",
        "aten::masked_scatter",  "aten::masked_scatter_backward"};
    if (is_island(node)) return true;
    if (std::ranges::find(kSelecting, node.op) == kSelecting.end()) return false;
    return std::ranges::any_of(values_read(node), [&](ValueId value) {
      return recording_.program.values[value].dtype == c10::ScalarType::Bool;
    });
  }

  // Whether a measurement from earlier says all that is asked for.
  bool complete(const CallRecord& record) const {
    const bool algorithms_known =
        options_.algorithms == Algorithms::kDefault || record.alternatives.has_value();
    return algorithms_known && record.overwritable.has_value();
  }

  // Calls with the same problem have the same caps, as far as they can.
  const std::vector<Bytes>* caps_for(const CallArguments& arguments) const {
    const auto known = caps_.find(arguments.problem());
    return known == caps_.end() ? nullptr : &known->second;
  }

  void note_caps(const CallArguments& arguments, const CallRecord& call) {
    if (!call.alternatives || call.alternatives->empty()) return;
    caps_.try_emplace(arguments.problem(), caps_of(call));
  }

  static std::vector<Bytes> caps_of(const CallRecord& call) {
    std::vector<Bytes> caps;
    for (const CallAlternative& a : *call.alternatives) caps.push_back(a.cap);
    return caps;
  }

  // Gives the node's results their storages and places its workspace.
  Status apply(NodeId id, const CallRecord& call) {
    Program& program = recording_.program;
    const Node& node = program.nodes[id];
    if (node.outputs.size() > call.results.size()) {
      return bad_input(describe(program, id) + ": " + std::to_string(call.results.size()) +
                       " results, expected " + std::to_string(node.outputs.size()));
    }
    const CallArguments arguments(program, node);
    std::vector<StorageId> made(call.allocations.size());
    bool views_only = true;
    for (std::size_t r = 0; r < node.outputs.size(); ++r) {
      if (!node.outputs[r].valid()) continue;
      const ResultLayout& layout = call.results[r];
      if (layout.source == ResultSource::kUndefined) {
        return bad_input(describe(program, id) + ": result " + std::to_string(r) +
                         " is undefined here, but is read later");
      }
      ValueSpec& value = program.values[node.outputs[r]];
      value.dtype = layout.dtype;
      value.sizes = layout.sizes;
      value.strides = layout.strides;
      value.offset = layout.offset;
      if (layout.source == ResultSource::kArgument) {
        value.storage = arguments.storages()[layout.index];
        REGEN_TRY(check_window(id, value, program.storages[value.storage].bytes));
        continue;
      }
      views_only = false;
      if (layout.source == ResultSource::kHost) {
        value.storage = program.storages.push_back(
            {node.name, Role::kComputed, static_cast<Bytes>(layout.index), "cpu"});
        continue;
      }
      value.storage = storage_of(id, r, layout.index, call, made);
      REGEN_TRY(check_window(id, value, program.storages[value.storage].bytes));
    }
    NodeRecord& record = recording_.nodes[id];
    const bool writes = node.outputs.empty() || has_effect(id);
    record.computes = !views_only || writes;
    record.seconds = record.computes ? call.seconds : 0;
    REGEN_TRY(place_workspace(call.allocations, made, record));
    if (is_island(node)) pool_workspace(record);
    for (const std::size_t storage : *call.overwritable) {
      if (laid_out_as_first_result(program, arguments, storage, call)) {
        record.overwritable.push_back(arguments.storages()[storage]);
      }
    }
    if (leaves_statistics(id)) record.shorter_seconds = call.shorter_seconds;
    if (options_.algorithms == Algorithms::kDefault || !call.alternatives || !record.computes) {
      return {};
    }
    return apply_alternatives(arguments, call, made, record);
  }

  // Not every operator that makes a view looks at how much memory there is.
  Status check_window(NodeId id, const ValueSpec& value, Bytes bytes) const {
    if (fits_in(value, bytes)) return {};
    return bad_input(describe(recording_.program, id) +
                     ": its result reaches beyond the memory that it lies in, which has " +
                     std::to_string(bytes) + " bytes");
  }

  Status apply_alternatives(const CallArguments& arguments, const CallRecord& call,
                            const std::vector<StorageId>& made, NodeRecord& record) {
    for (const CallAlternative& alternative : *call.alternatives) {
      NodeVariant& variant = record.alternatives.emplace_back();
      variant.seconds = alternative.seconds;
      REGEN_TRY(
          place_workspace(alternative.allocations, made_by(alternative, call, made), variant));
    }
    if (record.alternatives.empty()) return {};
    record.overwritable.clear();
    const auto group = groups_.try_emplace({arguments.problem(), caps_of(call)}, groups_.size());
    record.choice_group = group.first->second;
    return {};
  }

  // The storages that an alternative's allocations become: what outlives a call does so in the
  // same order in all of them.
  static std::vector<StorageId> made_by(const CallAlternative& alternative, const CallRecord& call,
                                        const std::vector<StorageId>& made) {
    std::vector<StorageId> lasting;
    for (std::size_t k = 0; k < made.size(); ++k) {
      if (call.allocations[k].death == CallAllocation::kForever) lasting.push_back(made[k]);
    }
    std::vector<StorageId> others(alternative.allocations.size());
    std::size_t next = 0;
    for (std::size_t k = 0; k < others.size() && next < lasting.size(); ++k) {
      if (alternative.allocations[k].death == CallAllocation::kForever) others[k] = lasting[next++];
    }
    return others;
  }

  // Whether what a shorter second run takes from the first is there, each in a storage of its own.
  bool leaves_statistics(NodeId id) const {
    const Node& node = recording_.program.nodes[id];
    const std::optional<ShorterRun> shorter = shorter_run(node);
    if (!shorter || !node.outputs[0].valid()) return false;
    return std::ranges::all_of(shorter->arguments, [&](const ShorterRun::Taken& taken) {
      if (!taken.from_results) return true;
      if (taken.index >= node.outputs.size() || !node.outputs[taken.index].valid()) return false;
      const ValueSpec& value = recording_.program.values[node.outputs[taken.index]];
      return value.offset == 0 && recording_.program.storages[value.storage].device.empty() &&
             value.storage != recording_.program.values[node.outputs[0]].storage;
    });
  }

  bool has_effect(NodeId id) const {
    const Node& node = recording_.program.nodes[id];
    if (node.random) return true;
    const auto handle = find_operator(recording_.program, id);
    return handle.ok() && !written_arguments(handle->schema()).empty();
  }

  StorageId storage_of(NodeId id, std::size_t result, std::size_t allocation,
                       const CallRecord& call, std::vector<StorageId>& made) {
    Program& program = recording_.program;
    std::string name = program.nodes[id].name;
    if (program.nodes[id].outputs.size() > 1) name += ":" + std::to_string(result);
    if (allocation >= made.size()) {
      return program.storages.push_back({name, Role::kComputed, 0, ""});
    }
    if (!made[allocation].valid()) {
      made[allocation] = program.storages.push_back(
          {name, Role::kComputed, call.allocations[allocation].bytes, ""});
    }
    return made[allocation];
  }

  // Results that are not read are freed when the call returns: workspace like any other.
  Status place_workspace(const std::vector<CallAllocation>& allocations,
                         const std::vector<StorageId>& made, NodeVariant& record) const {
    std::int64_t last = 1;
    for (const CallAllocation& a : allocations) {
      last = std::max(last, a.birth + 1);
      if (a.death != CallAllocation::kForever) last = std::max(last, a.death);
    }
    std::vector<Lifetime> lifetimes;
    std::vector<std::size_t> which;
    for (std::size_t k = 0; k < allocations.size(); ++k) {
      const CallAllocation& a = allocations[k];
      record.allocations.push_back({a.bytes, made[k], 0});
      if (made[k].valid() || a.bytes == 0) continue;
      lifetimes.push_back({a.birth, std::max(a.birth + 1, std::min(a.death, last)), a.bytes});
      which.push_back(k);
    }
    if (lifetimes.empty()) return {};
    PackOptions options;
    options.alignment = device_.alignment();
    options.limits.work = 20'000;
    REGEN_ASSIGN(const Packing packing, pack(lifetimes, options));
    record.workspace = packing.height;
    for (std::size_t i = 0; i < which.size(); ++i) {
      record.allocations[which[i]].offset = packing.offsets[i];
    }
    return {};
  }

  // In the place of its requests, which come in another order and in other sizes each time.
  void pool_workspace(NodeRecord& record) const {
    std::erase_if(record.allocations, [](const NodeAllocation& a) { return !a.result.valid(); });
    const Bytes unit = device_.alignment();
    const auto wanted = static_cast<Bytes>(static_cast<double>(record.workspace) * kIslandMargin);
    record.workspace = (wanted + unit - 1) / unit * unit;
    record.allocations.push_back({.bytes = record.workspace, .pool = true});
  }

  ExecutionDevice& device_;
  RecordOptions options_;
  Recording recording_;
  RecordCache own_cache_;
  struct Doubted {
    CallRecord record;
    Error why;
  };
  std::optional<Doubted> doubted_;  // a file's record of the call that is measured next
  std::map<std::string, std::vector<Bytes>> caps_;    // by problem
  std::map<StorageId, StorageId> captured_storages_;  // of the storages that nodes make
  std::map<std::pair<std::string, std::vector<Bytes>>, ChoiceGroupId> groups_;
};

}  // namespace

Result<Algorithms> parse_algorithms(std::string_view text) {
  if (text == "default") return Algorithms::kDefault;
  if (text == "any") return Algorithms::kAny;
  return bad_input("unknown algorithms '" + std::string(text) + "', expected default or any");
}

Result<Recording> record(const Program& program, ExecutionDevice& device,
                         const RecordOptions& options) {
  if (options.algorithms == Algorithms::kAny && device.torch_device().is_cuda() &&
      at::globalContext().benchmarkCuDNN()) {
    return bad_input(
        "algorithms: 'any' found while torch.backends.cudnn.benchmark is on, expected one of them: "
        "both choose the algorithms of convolutions");
  }
  device.forget_choices();
  std::optional<Result<Recording>> recording;
  const auto stream = options.capture ? device.own_stream() : nullptr;
  device.run([&] {
    const GeneratorGuard generator(device.torch_device());
    const LeaveUninitialized no_filling;
    recording.emplace(Recorder(program, device, options).run());
  });
  return std::move(*recording);
}

Result<Recording> record_with_file(const Program& program, ExecutionDevice& device,
                                   const RecordOptions& options, const std::string& path) {
  if (path.empty()) return record(program, device, options);
  NamedCache file(path);
  auto recording = record_with_cache(program, device, options, file.folder, file.kind, file.name);
  if (auto warning = file.folder.take_warning(); warning && options.on_distrust) {
    options.on_distrust(bad_input(std::move(*warning)));
  }
  return recording;
}

Result<Recording> record_with_cache(const Program& program, ExecutionDevice& device,
                                    RecordOptions options, CacheFolder& folder,
                                    const CacheKind& kind, const std::string& name) {
  RecordCache cache =
      options.anew ? RecordCache() : RecordCache::load(folder, kind, name, device.name());
  options.cache = &cache;
  options.on_distrust = [&](const Error& error) { folder.distrust(error.message); };
  // Again with what another wrote meanwhile, which takes no measurements: this one's are there too.
  while (true) {
    auto made = record(program, device, options);
    // What the file says of one call may be what another cannot be made with.
    if (!made.ok() && !options.anew && cache.has_foreign()) {
      options.on_distrust(bad_input(name + ": with what it says, " + made.error().message));
      options.anew = true;
      cache = RecordCache();
      continue;
    }
    REGEN_ASSIGN(Recording recording, std::move(made));
    if (!cache.changed()) return recording;
    if (options.anew) cache.reject_all();
    const bool others = cache.save(folder, kind, name, device.name());
    if (!others) return recording;
  }
}

}  // namespace regen::execute
