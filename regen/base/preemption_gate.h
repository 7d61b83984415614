// Whether a step may go on. An executor with a gate asks it before each quantum of work. The
// decision is made elsewhere: by a daemon that lets several jobs share a device, or by a test.
#pragma once

#include "regen/base/result.h"

namespace regen {

class Gate {
 public:
  virtual ~Gate() = default;

  // Asked before each quantum, so it must cost next to nothing: one load.
  virtual bool open() const = 0;
  // Whether a job may arrive that cannot wait for more than one quantum of work.
  virtual bool hurried() const { return true; }
  // Called when it is not open. What the step has issued (IssuedWork) may still be on the device.
  // Returns when the step may go on where it was; an error ends the step there. May take
  // long, and is called without Python's lock.
  virtual Status wait() = 0;
};

}  // namespace regen
