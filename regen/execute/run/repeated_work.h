// Stretches of a step that are the same every time, handed to the device as a whole.
//
// Between two kernels that are issued one by one a GPU idles for about a microsecond. A stretch of
// calls in which nothing changes from step to step can be captured once and launched as one piece
// of work: the same kernels with the same arguments in the same order, so the same bits. What
// changes stays outside: random numbers, memory that the caller brings or takes, numbers on the
// host, numbers that a schedule changes, and copies, which are on other queues.
//
// Invariant: a captured stretch is launched only while every address and number in it is as it was
// when it was captured; a caller that changes one calls forget().
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "regen/execute/device/device.h"
#include "regen/execute/run/instructions.h"

namespace regen::execute {

// Instructions [first, last), computes all of them.
struct Stretch {
  std::size_t first = 0;
  std::size_t last = 0;
  std::unique_ptr<CapturedWork> work = nullptr;
  bool refused = false;  // the device cannot capture it
};

struct StretchRules {
  bool scalars = true;          // calls that take the step's scalars are the same every time too
  std::size_t least_calls = 4;  // shorter ones are not worth it
};

// In ascending order, within instructions [first, last).
std::vector<Stretch> find_stretches(const InstructionList& list, const Program& program,
                                    std::size_t first, std::size_t last,
                                    const StretchRules& rules = {});

class RepeatedWork {
 public:
  void reset(std::vector<Stretch> stretches);
  // Addresses or numbers have changed.
  void forget();
  // A step begins.
  void begin_step() { ++steps_; }
  // Nothing has changed for some steps: capturing is likely to pay.
  bool is_settled() const { return steps_ > kQuietSteps && changes_ < kOften; }
  // The one that begins with this instruction, or null.
  Stretch* find(std::size_t instruction);
  // Of the device, taken by what is captured.
  Bytes bytes() const;
  std::size_t captured() const;

 private:
  static constexpr int kQuietSteps = 3;
  static constexpr int kOften = 5;

  std::vector<Stretch> stretches_;
  int steps_ = 0;    // since the last change
  int changes_ = 0;  // that cost captured work
};

}  // namespace regen::execute
