// How fast tensors travel between the host and a device: given, or measured once and remembered for
// the process and on disk.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "regen/cost/device.h"
#include "regen/execute/device/device.h"
#include "regen/execute/record/link.h"

namespace regen::session {

// Runs work on the device that is not a step (measuring, recording). A job that shares its device
// holds the device meanwhile. Empty: the work is just called.
using DeviceScope = std::function<Status(const std::function<Status()>& work)>;

Status in_scope(const DeviceScope& scope, const std::function<Status()>& work);

struct LinkSourceOptions {
  std::string folder = {};  // has links.json, of earlier processes; empty: none
  DeviceScope scope = {};
  // Other than measure_link(), for tests.
  std::function<Result<Link>(execute::ExecutionDevice&)> measure = {};
};

// Any thread may ask.
class LinkSource {
 public:
  explicit LinkSource(const Link& given) : link_(given) {}
  LinkSource(std::shared_ptr<execute::ExecutionDevice> device, LinkSourceOptions options);

  // Measured the first time, where no file of the folder knows it. Of processes that measure at the
  // same time, what the first to write has found counts for all, so that all plan alike.
  Result<Link> get();
  // What get() has returned so far.
  std::optional<Link> known() const;

 private:
  Result<Link> find();
  Result<Link> measure();

  const std::shared_ptr<execute::ExecutionDevice> device_;
  const LinkSourceOptions options_;
  mutable std::mutex mutex_;
  std::optional<Link> link_;
};

}  // namespace regen::session
