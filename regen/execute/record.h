// What every node of a program does on the real device: how long it takes, what it allocates in
// which order, and which layout its results have. Each node runs alone, on made-up contents, so
// that recording never needs more memory than one node does.
//
// The sequence of allocations of an operator is a function of its arguments' shapes, so what was
// seen once is served at planned addresses later, allocation by allocation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "regen/execute/device.h"
#include "regen/execute/program.h"
#include "regen/execute/record_cache.h"

namespace regen {

// The k-th allocation of a call.
struct NodeAllocation {
  Bytes bytes = 0;     // as asked for
  StorageId result;    // the storage it becomes; none for workspace
  Bytes offset = 0;    // of workspace: where in the node's workspace it lies
};

struct NodeRecord {
  bool computes = true;  // false: it only returns views of what it reads
  double seconds = 0;
  Bytes workspace = 0;  // everything that is not a result, packed
  std::vector<NodeAllocation> allocations;
};

// A program whose values are as the device makes them, and what its nodes do.
struct Recording {
  Program program;
  IdVector<NodeId, NodeRecord> nodes;
};

struct RecordOptions {
  int repeats = 5;             // timed runs of each node, fewer for slow ones
  double patience = 0.05;      // seconds of timed runs after which no more are started
  RecordCache* cache = nullptr;
  // Contents for storages where they matter (indices); an undefined tensor means made-up ones.
  std::function<at::Tensor(StorageId)> sample;
};

Result<Recording> record(const Program& program, ExecutionDevice& device,
                         const RecordOptions& options = {});

}  // namespace regen
