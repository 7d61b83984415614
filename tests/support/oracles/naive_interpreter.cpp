#include "tests/support/oracles/naive_interpreter.h"

#include <algorithm>
#include <limits>
#include <list>
#include <set>

namespace regen::testing {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

struct Copy {
  TensorId tensor;
  double bytes_left = 0;
};

// The two queues; the first copy of each is moving. `now` goes from event to event.
struct Copies {
  Link link;
  double now = 0;
  std::list<Copy> to_host, to_device;

  bool idle() const { return to_host.empty() && to_device.empty(); }
  bool under_way(TensorId t) const {
    const auto is_t = [&](const Copy& copy) { return copy.tensor == t; };
    return std::any_of(to_host.begin(), to_host.end(), is_t) ||
           std::any_of(to_device.begin(), to_device.end(), is_t);
  }

  // To the end of the next copy, but not beyond `limit`.
  void step(double limit) {
    const double sum = link.to_host + link.to_device;
    const bool joint = !to_host.empty() && !to_device.empty() && sum > link.both;
    const double up_speed = link.to_host * (joint ? link.both / sum : 1);
    const double down_speed = link.to_device * (joint ? link.both / sum : 1);
    const double up = time_left(to_host, up_speed);
    const double down = time_left(to_device, down_speed);
    const double time = std::min({up, down, limit - now});
    move(to_host, up_speed * time, up == time);
    move(to_device, down_speed * time, down == time);
    now = time == limit - now ? limit : now + time;
  }
  static double time_left(const std::list<Copy>& queue, double speed) {
    if (queue.empty()) return kForever;
    return queue.front().bytes_left <= 0 ? 0 : queue.front().bytes_left / speed;
  }
  static void move(std::list<Copy>& queue, double bytes, bool ends) {
    if (ends) return queue.pop_front();
    if (!queue.empty()) queue.front().bytes_left -= bytes;
  }

  void run_until(double time) {
    while (!idle() && now < time) step(time);
    now = std::max(now, time);
  }
};

struct Machine {
  const Graph& graph;
  const Plan& plan;
  Copies copies;
  double clock = 0;  // the compute queue has done all steps so far
  std::set<TensorId> on_device, on_host, fetched;
  std::set<OpId> ran;
  Bytes highest_end = 0;
  std::size_t next_address = 0;
  NaiveResult result;

  Bytes sum(const std::set<TensorId>& tensors) const {
    Bytes total = 0;
    for (TensorId t : tensors) total += graph.bytes(t);
    return total;
  }
  void wait_for(TensorId t) {
    while (copies.under_way(t)) copies.step(kForever);
    result.stall += std::max(0.0, copies.now - clock);
    clock = std::max(clock, copies.now);
  }
  void note_peaks(Bytes extra) {
    result.activation_peak_bytes = std::max(result.activation_peak_bytes, sum(on_device) + extra);
    result.host_peak_bytes = std::max(result.host_peak_bytes, sum(on_host));
  }
  void note_address(Bytes bytes) {
    if (plan.addresses) {
      highest_end = std::max(highest_end, (*plan.addresses)[next_address++] + bytes);
    }
  }
  bool fetched_again(TensorId t, std::size_t after) const {
    for (std::size_t i = after + 1; i < plan.steps.size(); ++i) {
      if (plan.steps[i] == Step::fetch(t)) return true;
      if (plan.steps[i] == Step::offload(t)) return false;
    }
    return false;
  }
  void use(TensorId t, std::size_t step) {
    if (!fetched.contains(t) || fetched_again(t, step)) return;
    on_host.erase(t);
    fetched.erase(t);
  }

  void compute(OpId op, VariantId v, std::size_t step) {
    const TensorId old = graph.overwrites(v);
    for (TensorId t : graph.reads(v)) {
      const auto& down = copies.to_device;
      const bool fetching =
          std::any_of(down.begin(), down.end(), [&](const Copy& copy) { return copy.tensor == t; });
      if (fetching || t == old) wait_for(t);
    }
    clock += ran.contains(op) ? graph.rerun_cost(v) : graph.cost(v);
    ran.insert(op);
    for (TensorId t : graph.makes(v)) {
      if (old.valid() && t == graph.makes(v)[0]) continue;
      if (on_device.insert(t).second) note_address(graph.bytes(t));
    }
    if (graph.workspace(v) > 0) note_address(graph.workspace(v));
    note_peaks(graph.workspace(v));
    for (TensorId t : graph.reads(v)) use(t, step);
    if (old.valid()) {
      on_device.erase(old);
      on_device.insert(graph.makes(v)[0]);
    }
  }

  void take(const Step& step, std::size_t index) {
    copies.run_until(clock);
    if (step.kind() == StepKind::kCompute) return compute(step.op(), step.variant(graph), index);
    const TensorId t = step.tensor();
    const Copy copy{t, static_cast<double>(graph.bytes(t))};
    if (step.kind() == StepKind::kOffload) {
      on_host.insert(t);
      copies.to_host.push_back(copy);
    } else if (step.kind() == StepKind::kFetch) {
      on_device.insert(t);
      fetched.insert(t);
      note_address(graph.bytes(t));
      copies.to_device.push_back(copy);
    } else {
      wait_for(t);
      on_device.erase(t);
      use(t, index);
    }
    note_peaks(0);
  }
};

}  // namespace

NaiveResult interpret(const Graph& graph, const Plan& plan, const Link& link) {
  Machine machine{.graph = graph, .plan = plan, .copies = {.link = link}};
  for (std::size_t i = 0; i < plan.steps.size(); ++i) machine.take(plan.steps[i], i);
  machine.copies.run_until(machine.clock);
  while (!machine.copies.idle()) machine.copies.step(kForever);
  NaiveResult result = machine.result;
  result.makespan = std::max(machine.clock, machine.copies.now);
  if (plan.addresses) result.activation_peak_bytes = machine.highest_end;
  result.peak_bytes = graph.fixed_bytes() + result.activation_peak_bytes;
  return result;
}

}  // namespace regen::testing
