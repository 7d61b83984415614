#include "regen/share/simulation/simulation.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "regen/base/text.h"
#include "regen/share/simulation/fleet.h"

namespace regen::share {
namespace {

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

class Simulator {
 public:
  Simulator(const Trace& trace, const SimulationOptions& options)
      : options_(options), fleet_(trace, options) {
    replay_.jobs.resize(trace.jobs.size());
    replay_.busy.resize(static_cast<std::size_t>(options.devices));
    for (std::size_t i = 0; i < fleet_.jobs(); ++i) {
      events_.push({fleet_.spec(i).arrival, Event::Kind::kArrival, i});
    }
  }

  Replay run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      const bool of_device = event.kind == Event::Kind::kDevice;
      if (of_device && event.version != fleet_.device(event.index).version) continue;
      ++replay_.events;
      now_ = event.time;
      if (of_device) on_device(fleet_.device(event.index));
      if (event.kind == Event::Kind::kRequest) on_request(event.index);
      if (event.kind == Event::Kind::kArrival) on_arrival(event.index);
    }
    return std::move(replay_);
  }

 private:
  // Counts the holder's work up to now.
  void count(FleetDevice& device) {
    if (!device.holder) return;
    const std::size_t job = *device.holder;
    const Nanoseconds worked = now_ - std::exchange(device.counted, now_);
    fleet_.job(job).remaining -= worked;
    replay_.jobs[job].used += worked;
    replay_.busy[fleet_.index_of(device)] += worked;
    if (fleet_.job(job).remaining > 0) report_rank(device, job);
  }

  // What a job is worth changes with its work; only the queues by rank listen.
  void report_rank(FleetDevice& device, std::size_t job) {
    device.turns->set_rank(JobId(job), fleet_.rank(job), now_);
  }

  void on_device(FleetDevice& device) {
    count(device);
    if (device.holder && fleet_.job(*device.holder).remaining == 0) {
      finish_work(device, *device.holder);
    } else if (device.yields_at && *device.yields_at <= now_) {
      give_way(device);
    } else {
      device.turns->advance(now_);
    }
    settle(device);
  }

  void give_way(FleetDevice& device) {
    const std::size_t job = *std::exchange(device.holder, std::nullopt);
    device.yields_at.reset();
    // A job that has not begun loses nothing.
    if (now_ > device.granted) ++replay_.jobs[job].preemptions;
    device.turns->yield(JobId(job), now_);
  }

  // Carries out what the queue says, and plans the device's next event.
  void settle(FleetDevice& device) {
    for (auto orders = device.turns->take_orders(); !orders.empty();
         orders = device.turns->take_orders()) {
      for (const Order& order : orders) obey(device, order);
    }
    Nanoseconds next = device.turns->next_event().value_or(kNever);
    if (device.holder) next = std::min(next, device.counted + fleet_.job(*device.holder).remaining);
    if (device.yields_at) next = std::min(next, *device.yields_at);
    ++device.version;
    if (next == kNever) return;
    events_.push(
        {std::max(next, now_), Event::Kind::kDevice, fleet_.index_of(device), device.version});
  }

  void obey(FleetDevice& device, const Order& order) {
    const std::size_t job = order.job.index();
    if (order.kind == Order::Kind::kGrant) {
      device.holder = job;
      device.granted = device.counted = now_;
      device.yields_at.reset();
    } else if (device.holder != job) {
      return;  // said before it ended
    } else if (order.kind == Order::Kind::kGoOn) {
      device.yields_at.reset();
    } else if (options_.quantum == 0) {
      give_way(device);
    } else {
      const Nanoseconds spent = now_ - device.granted;
      const Nanoseconds quanta = (spent + options_.quantum - 1) / options_.quantum;
      device.yields_at = device.granted + quanta * options_.quantum;
    }
  }

  // The holder has no work left: a training is done, or a request is.
  void finish_work(FleetDevice& device, std::size_t job) {
    if (fleet_.inference(job) && !finish_request(device, job)) return;
    device.holder.reset();
    device.yields_at.reset();
    device.turns->remove(JobId(job), now_);
    std::erase(device.jobs, job);
    replay_.jobs[job].finished = now_;
    settle(device);
    for (const std::size_t next : fleet_.by_urgency(waiting_)) {
      if (!fleet_.fits(device, next)) continue;
      std::erase(waiting_, next);
      admit(device, next);
    }
    if (fleet_.shrunk(device)) divide(device);
  }

  // Whether it was the last one.
  bool finish_request(FleetDevice& device, std::size_t job) {
    FleetJob& state = fleet_.job(job);
    replay_.requests.push_back({job, state.pending.front(), now_});
    state.pending.pop_front();
    if (++state.requests_done == fleet_.spec(job).steps) return true;
    if (!state.pending.empty()) {
      state.remaining = fleet_.step_time(job);
      report_rank(device, job);
      return false;
    }
    device.holder.reset();
    device.yields_at.reset();
    device.turns->rest(JobId(job), now_);
    return false;
  }

  void on_arrival(std::size_t job) {
    if (FleetDevice* device = fleet_.best_device(job, now_)) {
      admit(*device, job);
    } else {
      waiting_.push_back(job);
    }
  }

  void on_request(std::size_t job) {
    FleetJob& state = fleet_.job(job);
    FleetDevice& device = fleet_.device(replay_.jobs[job].device);
    count(device);
    state.pending.push_back(request_time(fleet_.spec(job), state.requests_made++));
    plan_request(job);
    if (state.pending.size() == 1) {
      state.remaining = fleet_.step_time(job);
      device.turns->want(JobId(job), fleet_.rank(job), now_);
    } else {
      report_rank(device, job);
    }
    settle(device);
  }

  // Requests that came while the job waited for a device are there at once.
  void plan_request(std::size_t job) {
    const std::int64_t made = fleet_.job(job).requests_made;
    if (made == fleet_.spec(job).steps) return;
    const Nanoseconds time = std::max(now_, request_time(fleet_.spec(job), made));
    events_.push({time, Event::Kind::kRequest, job});
  }

  void admit(FleetDevice& device, std::size_t job) {
    count(device);
    const TraceJob& spec = fleet_.spec(job);
    const bool whole = fleet_.fits_whole(device, job);
    FleetJob& state = fleet_.job(job);
    state.point = best_point(spec);
    if (!fleet_.inference(job)) state.remaining = least_time(spec);
    device.jobs.push_back(job);
    replay_.jobs[job].device = fleet_.index_of(device);
    replay_.jobs[job].placed = now_;
    device.turns->add(JobId(job), spec, now_);
    if (!whole) divide(device);
    if (fleet_.inference(job)) {
      plan_request(job);
    } else {
      device.turns->want(JobId(job), fleet_.rank(job), now_);
    }
    settle(device);
  }

  void divide(FleetDevice& device) {
    count(device);
    fleet_.divide(device);
    for (const std::size_t job : device.jobs) {
      if (!fleet_.inference(job) || !fleet_.job(job).pending.empty()) report_rank(device, job);
    }
    settle(device);
  }

  const SimulationOptions& options_;
  Fleet fleet_;
  Nanoseconds now_ = 0;
  std::vector<std::size_t> waiting_;  // for a device
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
