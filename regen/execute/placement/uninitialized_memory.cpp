#include "regen/execute/placement/uninitialized_memory.h"

#include <ATen/Context.h>

#include <mutex>

namespace regen::execute {
namespace {

// The setting is the process's, and steps may run on several threads at once.
std::mutex mutex;
int living = 0;
bool before = false;

}  // namespace

LeaveUninitialized::LeaveUninitialized() {
  const std::lock_guard lock(mutex);
  if (living++ > 0) return;
  before = at::globalContext().deterministicFillUninitializedMemory();
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

LeaveUninitialized::~LeaveUninitialized() {
  const std::lock_guard lock(mutex);
  if (--living == 0) at::globalContext().setDeterministicFillUninitializedMemory(before);
}

}  // namespace regen::execute
