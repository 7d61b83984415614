// What every node of a program does on the real device: how long it takes, what it allocates in
// which order, and which layout its results have. Each node runs alone, on made-up contents, so
// that recording never needs more memory than one node does, or one and the indices it reads.
//
// The sequence of allocations of an operator is a function of its arguments' shapes, so what was
// seen once is served at planned addresses later, allocation by allocation.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/execute/device/device.h"
#include "regen/execute/program/program.h"
#include "regen/execute/record/algorithm_search.h"
#include "regen/execute/record/record_cache.h"
#include "regen/graph/graph.h"

namespace regen::execute {

// The k-th allocation of a call.
struct NodeAllocation {
  Bytes bytes = 0;       // as asked for
  StorageId result;      // the storage it becomes; none for workspace
  Bytes offset = 0;      // of workspace: where in the node's workspace it lies
  bool at_most = false;  // `bytes` were seen for larger arguments than these
  bool pool = false;     // of an island: all of its requests but the results, first fit
};

// One way to run a node.
struct NodeVariant {
  double seconds = 0;
  Bytes workspace = 0;  // everything that is not a result, packed
  std::vector<NodeAllocation> allocations;
};

// The default way, and those that less scratch memory leads to.
struct NodeRecord : NodeVariant {
  bool computes = true;  // false: it only returns views of what it reads
  std::vector<NodeVariant> alternatives;
  ChoiceGroupId choice_group;  // the nodes with the same problem; none without alternatives
  // What it reads and may have its first result in place of; none where there are alternatives.
  std::vector<StorageId> overwritable;
  // Of a second run, where a shorter call does it (shorter_run() in operator_facts.h).
  std::optional<double> shorter_seconds;

  // Counted as the op's variants in the graph: 0 is the default; behind the alternatives come
  // those that differ from it in where the first result lies.
  const NodeVariant& variant(std::size_t choice) const {
    return choice == 0 || choice > alternatives.size() ? *this : alternatives[choice - 1];
  }
};

// A program whose values are as the device makes them, and what its nodes do.
struct Recording {
  Program program;
  IdVector<NodeId, NodeRecord> nodes;
  // Some of it is from a file: the first step that runs compares it with what operators do.
  bool remembered = false;
};

enum class Algorithms : std::uint8_t {
  kDefault,  // what PyTorch takes by itself: the bits of a plain run
  kAny,      // whatever gives the same results up to rounding; see algorithm_search.h
};
// "default" or "any".
Result<Algorithms> parse_algorithms(std::string_view text);

struct RecordOptions {
  int repeats = 5;         // timed runs of each node, fewer for slow ones
  double patience = 0.05;  // seconds of timed runs after which no more are started
  RecordCache* cache = nullptr;
  // What the file says is not used, and replaced by what is measured now.
  bool anew = false;
  // Called when a record of a file is not used.
  std::function<void(const Error&)> on_distrust = {};
  Algorithms algorithms = Algorithms::kDefault;
  SearchLimits search;   // for other algorithms
  bool capture = false;  // ExecutorOptions::capture of the steps to come
  // Set from outside to end the recording, with an error; null: never.
  const std::atomic<bool>* interrupt = nullptr;
  // Contents for storages of the captured step where they matter (indices); an undefined tensor
  // means made-up ones.
  std::function<at::Tensor(StorageId)> sample;
};

Result<Recording> record(const Program& program, ExecutionDevice& device,
                         const RecordOptions& options = {});

// With the measurements that processes share in a file ("": none), which gets what it lacks. Where
// several measure at the same time, the recording of each has the times that are in the file.
// What is wrong with the file goes to options.on_distrust, and work goes on without it.
Result<Recording> record_with_file(const Program& program, ExecutionDevice& device,
                                   const RecordOptions& options, const std::string& path);
// The same with a file of a folder of caches, whose warning it is then.
Result<Recording> record_with_cache(const Program& program, ExecutionDevice& device,
                                    RecordOptions options, CacheFolder& folder,
                                    const CacheKind& kind, const std::string& name);

}  // namespace regen::execute
