#include "regen/share/simulation/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace regen::share {
namespace {

double percentile(const std::vector<double>& sorted, double part) {
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

// 1 when all have the same, 1/n when one has all.
double jain(const std::vector<double>& values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 1;
}

void add_requests(const Trace& trace, const Replay& replay, Summary& summary) {
  std::vector<double> latencies;
  for (const RequestRecord& request : replay.requests) {
    const Nanoseconds latency = request.finished - request.arrived;
    latencies.push_back(to_seconds(latency));
    const auto& deadline = trace.jobs[request.job].deadline;
    summary.deadlines += deadline ? 1 : 0;
    summary.missed += deadline && latency > *deadline ? 1 : 0;
  }
  summary.request = distribution(std::move(latencies));
}

Json distribution_json(const Distribution& values) {
  if (values.count == 0) return nullptr;
  return {{"count", values.count}, {"mean", values.mean}, {"p50", values.p50},
          {"p95", values.p95},     {"p99", values.p99},   {"max", values.most}};
}

}  // namespace

Distribution distribution(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = percentile(values, 0.5),
          .p95 = percentile(values, 0.95),
          .p99 = percentile(values, 0.99),
          .most = values.back()};
}

Summary summarize(const Trace& trace, const Replay& replay, Policy policy) {
  Summary summary{.policy = policy, .events = replay.events};
  std::vector<double> completion, waiting, speeds;
  Nanoseconds first = trace.jobs.front().arrival;
  Nanoseconds last = 0;
  for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
    const TraceJob& job = trace.jobs[i];
    const JobRecord& record = replay.jobs[i];
    const Nanoseconds took = record.finished - job.arrival;
    first = std::min(first, job.arrival);
    last = std::max(last, record.finished);
    summary.preemptions += record.preemptions;
    if (job.kind == JobKind::kInference) continue;
    completion.push_back(to_seconds(took));
    waiting.push_back(to_seconds(took - record.used));
    speeds.push_back(static_cast<double>(least_time(job)) / static_cast<double>(took));
    summary.deadlines += job.deadline ? 1 : 0;
    summary.missed += job.deadline && took > *job.deadline ? 1 : 0;
  }
  add_requests(trace, replay, summary);
  summary.completion = distribution(std::move(completion));
  summary.waiting = distribution(std::move(waiting));
  summary.fairness = jain(speeds);
  summary.makespan = to_seconds(last - first);
  const Nanoseconds busy = std::accumulate(replay.busy.begin(), replay.busy.end(), Nanoseconds{0});
  const double offered = summary.makespan * static_cast<double>(replay.busy.size());
  summary.utilisation = offered > 0 ? to_seconds(busy) / offered : 0;
  return summary;
}

Json to_json(const Summary& summary) {
  return {{"policy", to_string(summary.policy)},
          {"completion_seconds", distribution_json(summary.completion)},
          {"waiting_seconds", distribution_json(summary.waiting)},
          {"request_seconds", distribution_json(summary.request)},
          {"makespan_seconds", summary.makespan},
          {"utilisation", summary.utilisation},
          {"deadlines", summary.deadlines},
          {"deadlines_missed", summary.missed},
          {"fairness", summary.fairness},
          {"preemptions", summary.preemptions},
          {"events", summary.events}};
}

}  // namespace regen::share
