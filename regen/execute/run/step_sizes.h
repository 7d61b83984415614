// A recorded step for tensors of other sizes: the same program with other numbers in it.
//
// Ids are those of the recorded program. What is not named keeps its sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "regen/execute/record/record.h"

namespace regen::execute {

struct StepSizes {
  struct SizedStorage {
    StorageId id;
    Bytes bytes = 0;
  };
  struct SizedValue {
    ValueId id;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::int64_t offset = 0;
  };
  struct SizedCall {
    NodeId id;
    std::vector<Json> args;
    Json kwargs = Json::object();
  };
  std::vector<SizedStorage> storages;
  std::vector<SizedValue> values;
  std::vector<SizedCall> calls;
};

// Refused unless every storage has at most the bytes that it was recorded with, and every value lies
// inside its storage. Results are allocated with exactly their bytes, workspace with what was
// recorded at most.
Result<Recording> with_sizes(const Recording& recording, const StepSizes& sizes);

}  // namespace regen::execute
