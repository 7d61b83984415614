// Whether a record that comes from a file describes the call it is found for. A file is no
// measurement: it may be of another program, edited, or damaged and still well-formed.
//
//   layouts      every result lies inside the memory that it is said to lie in
//   views        are made again by their operator, over tensors without memory
//   claims       results in place, shorter second runs: only of operators that could have been tried
//
// Times are believed; how a kernel lays out its results and what it allocates is compared when the
// step runs first (Executor).
#pragma once

#include "regen/execute/device/device.h"
#include "regen/execute/program/call_arguments.h"
#include "regen/execute/record/record_cache.h"

namespace regen::execute {

// The node's arguments have been recorded. The error says what does not fit.
Status check_record(const CallRecord& record, const Program& program, NodeId node,
                    const CallArguments& arguments, const ExecutionDevice& device);

}  // namespace regen::execute
