#include "regen/share/simulation/simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>
#include <tuple>

#include "regen/base/text.h"
#include "regen/share/split.h"

namespace regen::share {
namespace {

constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();
constexpr Bytes kSplitParts = 4096;  // as the scheduler's

struct Event {
  // At one time: what ends goes before what begins.
  enum class Kind : std::uint8_t { kDevice, kRequest, kArrival };
  Nanoseconds time = 0;
  Kind kind = Kind::kArrival;
  std::size_t index = 0;      // of the device or the job
  std::uint64_t version = 0;  // of the device: only its last event counts
  bool operator>(const Event& other) const {
    return std::tie(time, kind, index, version) >
           std::tie(other.time, other.kind, other.index, other.version);
  }
};

struct Job {
  std::size_t point = 0;
  Nanoseconds remaining = 0;             // of all steps; of inference, of the request at work
  std::deque<Nanoseconds> pending = {};  // requests, the one at work first
  std::int64_t requests_made = 0;
  std::int64_t requests_done = 0;
};

struct Device {
  std::unique_ptr<Turns> turns;
  std::vector<std::size_t> jobs = {};  // in the order of admission
  std::optional<std::size_t> holder = {};
  Nanoseconds granted = 0;  // when the holder got it
  Nanoseconds counted = 0;  // until when its work is counted
  std::optional<Nanoseconds> yields_at = {};
  std::uint64_t version = 0;
};

class Simulator {
 public:
  Simulator(const Trace& trace, const SimulationOptions& options)
      : trace_(trace), options_(options), jobs_(trace.jobs.size()) {
    replay_.jobs.resize(trace.jobs.size());
    replay_.busy.resize(static_cast<std::size_t>(options.devices));
    for (std::int64_t i = 0; i < options.devices; ++i) {
      devices_.push_back({.turns = make_turns(options.policy, options.turn)});
    }
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      events_.push({spec(i).arrival, Event::Kind::kArrival, i});
    }
  }

  Replay run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.kind == Event::Kind::kDevice && event.version != devices_[event.index].version) {
        continue;
      }
      ++replay_.events;
      now_ = event.time;
      if (event.kind == Event::Kind::kDevice) on_device(event.index);
      if (event.kind == Event::Kind::kRequest) on_request(event.index);
      if (event.kind == Event::Kind::kArrival) on_arrival(event.index);
    }
    return std::move(replay_);
  }

 private:
  const TraceJob& spec(std::size_t job) const { return trace_.jobs[job]; }
  bool inference(std::size_t job) const { return spec(job).kind == JobKind::kInference; }
  Nanoseconds step_time(std::size_t job) const { return spec(job).points[jobs_[job].point].time; }
  Bytes bytes(std::size_t job) const { return spec(job).points[jobs_[job].point].bytes; }

  // Device time still to do.
  Nanoseconds left(std::size_t job) const {
    const Job& state = jobs_[job];
    if (!inference(job)) return state.remaining;
    const std::int64_t open =
        spec(job).steps - state.requests_done - (state.pending.empty() ? 0 : 1);
    return state.remaining + open * step_time(job);
  }

  // For the queues by rank: what the job is worth now.
  Nanoseconds rank(std::size_t job) const {
    const Job& state = jobs_[job];
    if (options_.policy == Policy::kShortest) {
      if (!inference(job)) return state.remaining;
      return state.remaining + (std::ssize(state.pending) - 1) * step_time(job);
    }
    if (options_.policy != Policy::kDeadline) return 0;
    if (!spec(job).deadline) return kNever;
    return (inference(job) ? state.pending.front() : spec(job).arrival) + *spec(job).deadline;
  }

  // Counts the holder's work up to now.
  void count(Device& device) {
    if (!device.holder) return;
    const Nanoseconds worked = now_ - device.counted;
    device.counted = now_;
    jobs_[*device.holder].remaining -= worked;
    replay_.jobs[*device.holder].used += worked;
    replay_.busy[index_of(device)] += worked;
    if (options_.policy == Policy::kShortest && jobs_[*device.holder].remaining > 0) {
      device.turns->set_rank(JobId(*device.holder), rank(*device.holder), now_);
    }
  }
  std::size_t index_of(const Device& device) const {
    return static_cast<std::size_t>(&device - devices_.data());
  }

  void on_device(std::size_t index) {
    Device& device = devices_[index];
    count(device);
    if (device.holder && jobs_[*device.holder].remaining == 0) {
      finish_work(device, *device.holder);
    } else if (device.yields_at && *device.yields_at <= now_) {
      give_way(device);
    } else {
      device.turns->advance(now_);
    }
    settle(device);
  }

  void give_way(Device& device) {
    const std::size_t job = *std::exchange(device.holder, std::nullopt);
    device.yields_at.reset();
    // Who has not begun loses nothing.
    if (now_ > device.granted) ++replay_.jobs[job].preemptions;
    device.turns->yield(JobId(job), now_);
  }

  // Carries out what the queue says, and plans the device's next event.
  void settle(Device& device) {
    for (auto orders = device.turns->take_orders(); !orders.empty();
         orders = device.turns->take_orders()) {
      for (const Order& order : orders) obey(device, order);
    }
    Nanoseconds next = device.turns->next_event().value_or(kNever);
    if (device.holder) next = std::min(next, device.counted + jobs_[*device.holder].remaining);
    if (device.yields_at) next = std::min(next, *device.yields_at);
    ++device.version;
    if (next != kNever) {
      events_.push({std::max(next, now_), Event::Kind::kDevice, index_of(device), device.version});
    }
  }

  void obey(Device& device, const Order& order) {
    const std::size_t job = order.job.index();
    if (order.kind == Order::Kind::kGrant) {
      device.holder = job;
      device.granted = device.counted = now_;
      device.yields_at.reset();
    } else if (device.holder != job) {
      return;  // said before it ended
    } else if (order.kind == Order::Kind::kGoOn) {
      device.yields_at.reset();
    } else if (options_.window == 0) {
      give_way(device);
    } else {
      const Nanoseconds spent = now_ - device.granted;
      const Nanoseconds windows = (spent + options_.window - 1) / options_.window;
      device.yields_at = device.granted + windows * options_.window;
    }
  }

  // The holder has no work left: a training is done, a request is.
  void finish_work(Device& device, std::size_t job) {
    Job& state = jobs_[job];
    if (inference(job)) {
      replay_.requests.push_back({job, state.pending.front(), now_});
      state.pending.pop_front();
      if (++state.requests_done < spec(job).steps) {
        if (!state.pending.empty()) {
          state.remaining = step_time(job);
          device.turns->set_rank(JobId(job), rank(job), now_);
          return;
        }
        release(device, job);
        device.turns->rest(JobId(job), now_);
        return;
      }
    }
    release(device, job);
    device.turns->remove(JobId(job), now_);
    std::erase(device.jobs, job);
    replay_.jobs[job].finished = now_;
    settle(device);
    place_waiting(device);
    regrow(device);
  }

  void release(Device& device, std::size_t job) {
    if (device.holder != job) return;
    device.holder.reset();
    device.yields_at.reset();
  }

  void on_arrival(std::size_t job) {
    if (Device* device = best_device(job)) {
      admit(*device, job);
    } else {
      waiting_.push_back(job);
    }
  }

  void on_request(std::size_t job) {
    Job& state = jobs_[job];
    Device& device = devices_[replay_.jobs[job].device];
    count(device);
    state.pending.push_back(request_time(spec(job), state.requests_made++));
    plan_request(job);
    if (state.pending.size() == 1) {
      state.remaining = step_time(job);
      device.turns->want(JobId(job), rank(job), now_);
    } else {
      device.turns->set_rank(JobId(job), rank(job), now_);
    }
    settle(device);
  }

  // Requests that came while the job waited for a device are there at once.
  void plan_request(std::size_t job) {
    const std::int64_t made = jobs_[job].requests_made;
    if (made == spec(job).steps) return;
    events_.push({std::max(now_, request_time(spec(job), made)), Event::Kind::kRequest, job});
  }

  // Placement.
  Bytes used_bytes(const Device& device) const {
    Bytes sum = 0;
    for (const std::size_t job : device.jobs) sum += bytes(job);
    return sum;
  }
  Bytes least_bytes(const Device& device) const {
    Bytes sum = 0;
    for (const std::size_t job : device.jobs) sum += fewest_bytes(spec(job));
    return sum;
  }
  Nanoseconds load(const Device& device) const {
    Nanoseconds sum = device.holder ? device.counted - now_ : 0;  // done since it was counted
    for (const std::size_t job : device.jobs) sum += left(job);
    return sum;
  }
  bool fits_whole(const Device& device, std::size_t job) const {
    const Bytes best = spec(job).points[best_point(spec(job))].bytes;
    return best <= options_.device_bytes - used_bytes(device);
  }
  bool fits_somehow(const Device& device, std::size_t job) const {
    return fewest_bytes(spec(job)) <= options_.device_bytes - least_bytes(device);
  }
  bool takes(const Device& device) const {
    return options_.policy != Policy::kFcfs || device.jobs.empty();
  }

  Device* best_device(std::size_t job) {
    Device* best = nullptr;
    std::pair<bool, Nanoseconds> best_key;
    for (Device& device : devices_) {
      if (!takes(device)) continue;
      const bool whole = fits_whole(device, job);
      if (!whole && !fits_somehow(device, job)) continue;
      const std::pair key(!whole, load(device));
      if (best == nullptr || key < best_key) {
        best = &device;
        best_key = key;
      }
    }
    return best;
  }

  void admit(Device& device, std::size_t job) {
    count(device);
    Job& state = jobs_[job];
    const bool whole = fits_whole(device, job);
    state.point = best_point(spec(job));
    device.jobs.push_back(job);
    replay_.jobs[job].device = index_of(device);
    replay_.jobs[job].placed = now_;
    if (!inference(job)) state.remaining = spec(job).steps * step_time(job);
    if (!whole) divide(device);
    device.turns->add(JobId(job), spec(job), now_);
    if (inference(job)) {
      plan_request(job);
    } else {
      device.turns->want(JobId(job), rank(job), now_);
    }
    settle(device);
  }

  // Who is tried first when there is room.
  std::pair<Nanoseconds, std::size_t> turn_to_be_placed(std::size_t job) const {
    switch (options_.policy) {
      case Policy::kPriority:
        return {-spec(job).priority, job};
      case Policy::kDeadline:
        return {spec(job).deadline ? spec(job).arrival + *spec(job).deadline : kNever, job};
      case Policy::kShortest:
        return {least_time(spec(job)), job};
      default:
        return {0, job};
    }
  }

  void place_waiting(Device& device) {
    std::vector<std::size_t> order(waiting_.begin(), waiting_.end());
    // Stable: of equals, the one that came first.
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return turn_to_be_placed(a).first < turn_to_be_placed(b).first;
    });
    for (const std::size_t job : order) {
      if (!takes(device)) break;
      if (!fits_whole(device, job) && !fits_somehow(device, job)) continue;
      std::erase(waiting_, job);
      admit(device, job);
    }
  }

  void regrow(Device& device) {
    const bool shrunk =
        std::any_of(device.jobs.begin(), device.jobs.end(),
                    [this](std::size_t job) { return jobs_[job].point != best_point(spec(job)); });
    if (!shrunk) return;
    count(device);
    divide(device);
    settle(device);
  }

  // Of a device whose work is counted: the points that take the least time in all; the smallest
  // ones where rounding leaves no other.
  void divide(Device& device) {
    std::vector<SplitJob> parts;
    for (const std::size_t job : device.jobs) {
      const std::int64_t level = options_.policy == Policy::kPriority ? spec(job).priority : 0;
      parts.push_back({level, spec(job).points});
    }
    const Bytes granule = std::max<Bytes>(1, options_.device_bytes / kSplitParts);
    const auto chosen = split(parts, options_.device_bytes, granule);
    for (std::size_t i = 0; i < device.jobs.size(); ++i) {
      set_point(device.jobs[i], chosen.ok() ? chosen->chosen[i] : smallest_point(device.jobs[i]));
    }
    if (options_.policy != Policy::kShortest) return;
    for (const std::size_t job : device.jobs) {
      if (!inference(job) || !jobs_[job].pending.empty()) {
        device.turns->set_rank(JobId(job), rank(job), now_);
      }
    }
  }

  std::size_t smallest_point(std::size_t job) const {
    const auto& points = spec(job).points;
    const auto smaller = [](const MemoryPoint& a, const MemoryPoint& b) {
      return std::pair(a.bytes, a.time) < std::pair(b.bytes, b.time);
    };
    return static_cast<std::size_t>(std::min_element(points.begin(), points.end(), smaller) -
                                    points.begin());
  }

  // What is left to do takes longer or shorter in the ratio of the steps.
  void set_point(std::size_t job, std::size_t point) {
    Job& state = jobs_[job];
    if (state.point == point) return;
    const long double ratio = static_cast<long double>(spec(job).points[point].time) /
                              static_cast<long double>(step_time(job));
    if (state.remaining > 0) {
      state.remaining =
          std::max<Nanoseconds>(1, std::llround(static_cast<long double>(state.remaining) * ratio));
    }
    state.point = point;
  }

  const Trace& trace_;
  const SimulationOptions& options_;
  Nanoseconds now_ = 0;
  std::vector<Job> jobs_;
  std::vector<Device> devices_;
  std::vector<std::size_t> waiting_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Replay replay_;
};

}  // namespace

Result<Replay> replay(const Trace& trace, const SimulationOptions& options) {
  for (const TraceJob& job : trace.jobs) {
    if (fewest_bytes(job) <= options.device_bytes) continue;
    return infeasible("job " + in_quotes(job.name) + " needs at least " +
                      format_grouped(fewest_bytes(job)) + " bytes, expected at most the " +
                      format_grouped(options.device_bytes) + " of a device");
  }
  return Simulator(trace, options).run();
}

}  // namespace regen::share
