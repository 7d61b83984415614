// The scheduler's orders to jobs; the caller of the scheduler passes them on.
#pragma once

#include <cstdint>

#include "regen/base/id.h"
#include "regen/base/units.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

struct JobTag;
using JobId = Id<JobTag>;

// How many bytes a job may use. A job reads it with one load, so it is packed into one word.
struct ByteLimit {
  Bytes bytes = 0;
  std::uint32_t generation = 0;  // changes with the bytes, modulo 256
  Depth park = Depth::kPause;    // how deep to go by itself when it gives the device back to idle

  static ByteLimit unpack(std::uint64_t word);
  std::uint64_t pack() const;
  bool operator==(const ByteLimit&) const = default;
};

struct Order {
  enum class Kind : std::uint8_t {
    kGrant,     // it holds the device now
    kGiveWay,   // it holds the device and should yield or rest soon
    kGoOn,      // the last kGiveWay is taken back
    kHung,      // it was asked to give way and has not, for the operator's patience (again)
    kLimit,     // this is how many bytes it may use from its next step on
    kMakeRoom,  // it should get out of the way, to this depth
    kAdmit,     // the newcomer is in
    kExpire,    // the newcomer has waited too long and is out
    kUpdated,   // the limit fits what the job has said about itself since
  };
  JobId job;
  Kind kind;
  ByteLimit limit = {};         // of kLimit
  Depth depth = Depth::kPause;  // of kMakeRoom

  bool operator==(const Order&) const = default;
};

}  // namespace regen::share
