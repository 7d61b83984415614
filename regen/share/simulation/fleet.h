// The modelled devices and the jobs on them at one moment of a replay: what is left to do, what
// fits where, and at which of its points each job runs. Time and turns are the simulator's
// business.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "regen/share/simulation/simulation.h"

namespace regen::share {

// A job of the trace, by its index.
struct FleetJob {
  std::size_t point = 0;
  Nanoseconds remaining = 0;             // of all steps; of inference, of the request at work
  std::deque<Nanoseconds> pending = {};  // requests, the one at work first
  std::int64_t requests_made = 0;
  std::int64_t requests_done = 0;
};

struct FleetDevice {
  std::unique_ptr<Turns> turns;
  std::vector<std::size_t> jobs = {};  // in the order of admission
  std::optional<std::size_t> holder = {};
  Nanoseconds granted = 0;  // when the holder got it
  Nanoseconds counted = 0;  // until when its work is counted
  std::optional<Nanoseconds> yields_at = {};
  std::uint64_t version = 0;  // of its next event
};

class Fleet {
 public:
  // Both must outlive it.
  Fleet(const Trace& trace, const SimulationOptions& options);

  const TraceJob& spec(std::size_t job) const { return trace_.jobs[job]; }
  bool inference(std::size_t job) const { return spec(job).kind == JobKind::kInference; }
  FleetJob& job(std::size_t index) { return jobs_[index]; }
  const FleetJob& job(std::size_t index) const { return jobs_[index]; }
  std::size_t jobs() const { return jobs_.size(); }
  FleetDevice& device(std::size_t index) { return devices_[index]; }
  std::size_t index_of(const FleetDevice& device) const {
    return static_cast<std::size_t>(&device - devices_.data());
  }

  // Of a step, at the job's present point.
  Nanoseconds step_time(std::size_t job) const { return spec(job).points[jobs_[job].point].time; }
  // For the queues by rank: what a job that has work is worth now.
  Nanoseconds rank(std::size_t job) const;

  // Whether the device takes the job: at its quickest point beside the others as they are, or at
  // some points of all.
  bool fits_whole(const FleetDevice& device, std::size_t job) const;
  bool fits(const FleetDevice& device, std::size_t job) const;
  // Null when it fits nowhere.
  FleetDevice* best_device(std::size_t job, Nanoseconds now);
  // Of jobs that wait for a device, the order in which they are tried.
  std::vector<std::size_t> by_urgency(std::vector<std::size_t> waiting) const;

  bool shrunk(const FleetDevice& device) const;
  // Of a device whose work is counted: chooses the points that take the least time in all. What is
  // left to do takes longer or shorter in the ratio of the steps.
  void divide(FleetDevice& device);

 private:
  Nanoseconds left(std::size_t job) const;
  Nanoseconds load(const FleetDevice& device, Nanoseconds now) const;
  Nanoseconds urgency(std::size_t job) const;
  std::size_t smallest_point(std::size_t job) const;
  void set_point(std::size_t job, std::size_t point);

  const Trace& trace_;
  const SimulationOptions& options_;
  std::vector<FleetJob> jobs_;
  std::vector<FleetDevice> devices_;
};

}  // namespace regen::share
