// The last hour of each device and job, in steps of a few seconds. It is made of the daemon's reports, so that nothing is
// counted twice. It reads no clock: time is the age of the daemon.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "regen/base/json.h"
#include "regen/share/report/status.h"
#include "regen/share/web/series.h"

namespace regen::share {

class History {
 public:
  static constexpr Nanoseconds kStep = 5'000'000'000;
  static constexpr std::size_t kPoints = 720;  // an hour
  static constexpr std::size_t kMostJobs = 256;

  // What was so between the beginning and the end of a step; bytes are those at its end.
  struct DevicePoint {
    float utilisation = 0;
    float turns_per_second = 0;
    Bytes used_bytes = 0;
  };
  // Percentiles are seconds, as the report at its end has them; not a number where it has none.
  struct JobPoint {
    float fraction = 0;  // of the device's time
    float turns_per_second = 0;
    float pauses_per_second = 0;
    float wait_p50 = 0;
    float wait_p95 = 0;
    float request_p95 = 0;
    Bytes held_bytes = 0;
  };
  using DeviceSeries = Series<DevicePoint, kPoints>;
  using JobSeries = Series<JobPoint, kPoints>;
  // So that 256 jobs take 5.9 MB at most.
  static_assert(JobSeries::kBytes == 23'040 && DeviceSeries::kBytes == 11'520);

  // A report as it is now; the first one of each step counts. Jobs that have left are forgotten. While there are more
  // jobs than the most, those that came last have no history.
  void add(const DaemonStatus& status);

  // The points of the steps after `after`.
  Json json(std::int64_t after = -1) const;
  // The last step that has points; -1: none has.
  std::int64_t last_step() const { return step_ - 1; }

 private:
  struct Device {
    std::string name;
    Nanoseconds busy = 0;  // as it was when the present step began; so are all counts here
    std::int64_t turns = 0;
    DeviceSeries series = {};
  };
  struct Job {
    std::string name;
    JobCounts counts = {};
    bool seen = false;
    JobSeries series = {};
  };
  using JobKey = std::pair<std::size_t, std::string>;  // device and identity

  // What lies between two reports that count.
  struct Span {
    double seconds = 0;
    std::size_t steps = 0;
  };
  void add_device(std::size_t index, const DeviceStatus& status, const Span& span);
  void add_job(const JobKey& key, const JobStatus& status, const Span& span);

  std::int64_t step_ = 0;  // the present one
  Nanoseconds at_ = -1;    // of the last report that counts
  std::vector<Device> devices_;
  std::map<JobKey, Job> jobs_;
  std::size_t jobs_left_out_ = 0;
};

}  // namespace regen::share
