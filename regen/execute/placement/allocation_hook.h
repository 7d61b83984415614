// How a thread takes part in the decision where torch's allocations go. The allocators that
// placement_cpu.cpp and placement_cuda.cpp put in front of torch's own ask the hook of the calling
// thread, if there is one; a scope of placement.h is such a hook.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>

#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen::execute {

class AllocationHook {
 public:
  // Without an address the request goes to torch's own allocator.
  struct Place {
    void* address = nullptr;
    c10::DeleterFnPtr deleter = nullptr;
  };

  explicit AllocationHook(c10::Device device) : device_(device) {}
  virtual ~AllocationHook();

  // The next three are called only while active(); the first for more than 0 bytes. It may refuse
  // by throwing c10::OutOfMemoryError.
  virtual Place place(std::size_t bytes) = 0;
  // A request for 0 bytes, which needs no memory; may be refused by throwing.
  virtual void asked_for_nothing() = 0;
  // What torch's allocator gave after place() had left it the request.
  virtual void forwarded(const void* address, std::size_t bytes) = 0;
  // True if the address is a placed one, so that there is nothing more to free.
  virtual bool freed(const void* address) = 0;
  // Whether freed() is to be called for memory that torch's allocator gave.
  virtual bool sees_ends() const { return true; }
  // Serves no more, and waits to be left: another hook may take its place.
  virtual bool is_over() const { return false; }

  // See live_bytes_of_call() and outgrow().
  virtual Bytes live_bytes() const = 0;
  virtual void outgrow(Bytes /*bytes*/) {}

  c10::Device device() const { return device_; }
  // From the begin of an operator to its end.
  bool active() const { return active_; }
  void set_active(bool active) { active_ = active; }

 private:
  c10::Device device_;
  bool active_ = false;
};

extern constinit thread_local AllocationHook* thread_hook;

// The hook that an allocation on this thread has to ask, or null.
inline AllocationHook* active_hook(c10::DeviceType type) {
  AllocationHook* hook = thread_hook;
  if (hook == nullptr || !hook->active() || hook->device().type() != type) return nullptr;
  return hook;
}

// Makes it this thread's hook, with the allocator of its device in front. An error if the thread
// has one already.
Status enter_hook(AllocationHook& hook);
// On the same thread.
void leave_hook(AllocationHook& hook);

// Deleter of placed memory: it notifies the hook of this thread and does nothing else.
void delete_placed(void* address);

// For the CPU; those of CUDA are in cuda_backend.h.
Status install_cpu_hook();
void remove_cpu_hook();
bool cpu_hook_installed();

}  // namespace regen::execute
