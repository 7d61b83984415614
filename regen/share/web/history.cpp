#include "regen/share/web/history.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace regen::share {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

float seconds_of(const std::optional<Percentiles>& times, Nanoseconds Percentiles::*which) {
  return times ? static_cast<float>(to_seconds((*times).*which)) : kUnknown;
}

float per_second(std::int64_t count, double seconds) {
  return static_cast<float>(static_cast<double>(count) / seconds);
}

// Four digits: more would be noise, and bytes on the way to the page.
Json rounded(float value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double power = std::floor(std::log10(std::abs(static_cast<double>(value))));
  if (power >= 3) return std::llround(value);
  const double scale = std::pow(10.0, 3 - power);
  return std::round(static_cast<double>(value) * scale) / scale;
}

Json rounded(Bytes value) {
  return value;
}

// A list of one value of each point from `first` on.
template <typename Points, typename Point, typename Value>
Json list(const Points& points, std::size_t first, Value Point::*value) {
  Json values = Json::array();
  for (std::size_t i = first; i < points.size(); ++i) values.push_back(rounded(points[i].*value));
  return values;
}

// The place of the first point that lies after the step `after`, of points that end with the step `last`.
std::size_t first_after(std::size_t size, std::int64_t last, std::int64_t after) {
  const std::int64_t oldest = last + 1 - static_cast<std::int64_t>(size);
  const std::int64_t place = std::clamp<std::int64_t>(after, oldest - 1, last) + 1 - oldest;
  return static_cast<std::size_t>(place);
}

Json device_json(const std::string& name, const History::DeviceSeries& points, std::int64_t last,
                 std::int64_t after) {
  using Point = History::DevicePoint;
  const std::size_t first = first_after(points.size(), last, after);
  return {{"name", name},
          {"from", last + 1 - static_cast<std::int64_t>(points.size() - first)},
          {"utilisation", list(points, first, &Point::utilisation)},
          {"turns_per_second", list(points, first, &Point::turns_per_second)},
          {"used_bytes", list(points, first, &Point::used_bytes)}};
}

Json job_json(const std::string& device, const std::string& identity, const std::string& name,
              const History::JobSeries& points, std::int64_t last, std::int64_t after) {
  using Point = History::JobPoint;
  const std::size_t first = first_after(points.size(), last, after);
  return {{"device", device},
          {"identity", identity},
          {"name", name},
          {"from", last + 1 - static_cast<std::int64_t>(points.size() - first)},
          {"fraction", list(points, first, &Point::fraction)},
          {"turns_per_second", list(points, first, &Point::turns_per_second)},
          {"pauses_per_second", list(points, first, &Point::pauses_per_second)},
          {"wait_p50_seconds", list(points, first, &Point::wait_p50)},
          {"wait_p95_seconds", list(points, first, &Point::wait_p95)},
          {"request_p95_seconds", list(points, first, &Point::request_p95)},
          {"held_bytes", list(points, first, &Point::held_bytes)}};
}

}  // namespace

// Steps that had no report have the mean of the time in which they lie.
void History::add(const DaemonStatus& status) {
  const std::int64_t step = status.age / kStep;
  if (at_ >= 0 && step <= step_) return;
  const Span span{.seconds = to_seconds(status.age - at_),
                  .steps = at_ < 0 ? 0 : std::min(static_cast<std::size_t>(step - step_), kPoints)};
  devices_.resize(status.devices.size());
  for (auto& [key, job] : jobs_) job.seen = false;
  jobs_left_out_ = 0;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    add_device(i, status.devices[i], span);
    for (const JobStatus& job : status.devices[i].jobs) add_job({i, job.identity}, job, span);
  }
  std::erase_if(jobs_, [](const auto& entry) { return !entry.second.seen; });
  step_ = step;
  at_ = status.age;
}

void History::add_device(std::size_t index, const DeviceStatus& status, const Span& span) {
  Device& device = devices_[index];
  const DevicePoint point{
      .utilisation = static_cast<float>(to_seconds(status.busy - device.busy) / span.seconds),
      .turns_per_second = per_second(status.turns - device.turns, span.seconds),
      .used_bytes = status.used_bytes};
  for (std::size_t i = 0; i < span.steps; ++i) device.series.add(point);
  device.name = status.name;
  device.busy = status.busy;
  device.turns = status.turns;
}

void History::add_job(const JobKey& key, const JobStatus& status, const Span& span) {
  auto found = jobs_.find(key);
  // The same job, anew: it counts from the beginning.
  if (found != jobs_.end() && found->second.counts.grants > status.counts.grants) {
    jobs_.erase(found);
    found = jobs_.end();
  }
  const bool is_new = found == jobs_.end();
  if (is_new) {
    if (jobs_.size() >= kMostJobs) {
      ++jobs_left_out_;
      return;
    }
    found = jobs_.emplace(key, Job()).first;
  }
  Job& job = found->second;
  const JobCounts& counts = status.counts;
  const bool came_now = to_seconds(status.age) <= span.seconds;
  const JobPoint point{
      .fraction = static_cast<float>(to_seconds(counts.used - job.counts.used) / span.seconds),
      .turns_per_second = per_second(counts.grants - job.counts.grants, span.seconds),
      .pauses_per_second = per_second(counts.preemptions - job.counts.preemptions, span.seconds),
      .wait_p50 = seconds_of(status.waits, &Percentiles::p50),
      .wait_p95 = seconds_of(status.waits, &Percentiles::p95),
      .request_p95 = seconds_of(status.request_times, &Percentiles::p95),
      .held_bytes = status.held_bytes};
  // One that came in this step was not here in those before; of another one the counts at its beginning are not known.
  const std::size_t steps = !is_new    ? span.steps
                            : came_now ? std::min<std::size_t>(span.steps, 1)
                                       : 0;
  for (std::size_t i = 0; i < steps; ++i) job.series.add(point);
  job.name = status.name;
  job.counts = counts;
  job.seen = true;
}

Json History::json(std::int64_t after) const {
  Json devices = Json::array();
  for (const Device& device : devices_) {
    devices.push_back(device_json(device.name, device.series, last_step(), after));
  }
  Json jobs = Json::array();
  for (const auto& [key, job] : jobs_) {
    jobs.push_back(
        job_json(devices_[key.first].name, key.second, job.name, job.series, last_step(), after));
  }
  return {{"step_seconds", to_seconds(kStep)},
          {"last_step", last_step()},
          {"jobs_left_out", jobs_left_out_},
          {"devices", std::move(devices)},
          {"jobs", std::move(jobs)}};
}

}  // namespace regen::share
