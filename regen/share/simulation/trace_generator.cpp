#include "regen/share/simulation/trace_generator.h"

#include <algorithm>
#include <cmath>

#include "regen/base/random.h"

namespace regen::share {
namespace {

constexpr double kLeastSeconds = 1e-3;
constexpr double kMostMeans = 1000;  // no job is longer than so many mean ones

class Generator {
 public:
  explicit Generator(const TraceOptions& options) : options_(options), random_(options.seed) {}

  Trace make() {
    Trace trace{.devices = options_.devices, .device_bytes = options_.device_bytes};
    // So many devices are busy to `load` when jobs of this length come at this distance.
    const double distance =
        options_.mean_seconds / (options_.load * static_cast<double>(options_.devices));
    double now = 0;
    for (std::int64_t i = 0; i < options_.jobs; ++i) {
      now += exponential(distance);
      trace.jobs.push_back(job(i, now));
    }
    return trace;
  }

 private:
  double exponential(double mean) { return -mean * std::log1p(-random_.real()); }

  double duration() {
    const double mean = options_.mean_seconds;
    double seconds = exponential(mean);
    if (std::isfinite(options_.tail)) {
      const double least = mean * (options_.tail - 1) / options_.tail;
      seconds = least / std::pow(1 - random_.real(), 1 / options_.tail);
    }
    return std::clamp(seconds, kLeastSeconds, kMostMeans * mean);
  }

  // A job that could live with less at the price of time, as the planners' curves look.
  std::vector<MemoryPoint> points(Bytes bytes, double step_seconds) {
    std::vector<MemoryPoint> result;
    for (const auto& [part, slowdown] :
         {std::pair(1.0, 1.0), {0.75, 1.05}, {0.5, 1.2}, {0.35, 1.4}}) {
      result.push_back({static_cast<Bytes>(static_cast<double>(bytes) * part),
                        std::max<Nanoseconds>(1, from_seconds(step_seconds * slowdown))});
    }
    return result;
  }

  TraceJob job(std::int64_t number, double arrival) {
    const double seconds = duration();
    TraceJob job{.name = "job " + std::to_string(number), .arrival = from_seconds(arrival)};
    const bool inference = random_.chance(options_.inference);
    const auto share = 0.05 + 0.45 * random_.real();
    const auto bytes = static_cast<Bytes>(static_cast<double>(options_.device_bytes) *
                                          (inference ? share / 4 : share));
    if (inference) {
      job.kind = JobKind::kInference;
      const double request = 0.005 + 0.045 * random_.real();
      job.steps = std::clamp<std::int64_t>(std::llround(seconds / request), 1, 2000);
      job.rate = 0.3 / request;  // alone it keeps its device busy for three tenths of the time
      job.priority = options_.priorities - 1;
      job.points = {{bytes, from_seconds(request)}};
      if (random_.chance(options_.deadlines)) job.deadline = from_seconds(5 * request);
      return job;
    }
    job.steps = std::max<std::int64_t>(1, std::llround(seconds / 0.25));
    job.points = points(bytes, seconds / static_cast<double>(job.steps));
    job.priority = random_.between(0, std::max<std::int64_t>(0, options_.priorities - 2));
    job.weight = static_cast<double>(std::int64_t{1} << random_.between(0, 2));
    if (random_.chance(options_.deadlines)) {
      job.deadline = from_seconds(seconds * (1.5 + 6.5 * random_.real()));
    }
    return job;
  }

  const TraceOptions& options_;
  Random random_;
};

}  // namespace

Result<Trace> make_trace(const TraceOptions& options) {
  Trace trace = Generator(options).make();
  REGEN_TRY(check_trace(trace, "generated trace"));
  return trace;
}

}  // namespace regen::share
