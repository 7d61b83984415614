#include "regen/share/report/status.h"

namespace regen::share {
namespace {

Json p50(const std::optional<Percentiles>& times) {
  return times ? Json(to_seconds(times->p50)) : Json(nullptr);
}

Json p95(const std::optional<Percentiles>& times) {
  return times ? Json(to_seconds(times->p95)) : Json(nullptr);
}

Json job_json(const JobStatus& job) {
  const JobCounts& counts = job.counts;
  return {{"name", job.name},
          {"identity", job.identity},
          {"process", job.process},
          {"user", job.user},
          {"priority", job.priority},
          {"weight", job.weight},
          {"deadline_seconds", job.deadline ? Json(to_seconds(*job.deadline)) : Json(nullptr)},
          {"memory_bytes", job.memory},
          {"least_bytes", job.least_bytes},
          {"persistent_bytes", job.persistent_bytes},
          {"limit_bytes", job.limit_bytes},
          {"held_bytes", job.held_bytes},
          {"used_bytes", job.used_bytes},
          {"over_limit", job.over_limit()},
          {"memory_state", job.memory_state},
          {"deepest", to_string(job.deepest)},
          {"state", to_string(job.state)},
          {"asked_to_give_way", job.asked_to_give_way},
          {"age_seconds", to_seconds(job.age)},
          {"used_seconds", to_seconds(counts.used)},
          {"share", job.share()},
          {"waited_seconds", to_seconds(counts.waited)},
          {"longest_wait_seconds", to_seconds(counts.longest_wait)},
          {"wait_p50_seconds", p50(job.waits)},
          {"wait_p95_seconds", p95(job.waits)},
          {"requests", job.requests ? Json(*job.requests) : Json(nullptr)},
          {"request_p50_seconds", p50(job.request_times)},
          {"request_p95_seconds", p95(job.request_times)},
          {"grants", counts.grants},
          {"preemptions", counts.preemptions},
          {"missed_deadlines", counts.missed_deadlines}};
}

Json newcomer_json(const JobStatus& job) {
  return {{"name", job.name},
          {"identity", job.identity},
          {"process", job.process},
          {"user", job.user},
          {"priority", job.priority},
          {"memory_bytes", job.memory},
          {"least_bytes", job.least_bytes},
          {"waited_seconds", to_seconds(job.age)}};
}

Json device_json(const DeviceStatus& device) {
  Json jobs = Json::array();
  for (const JobStatus& job : device.jobs) jobs.push_back(job_json(job));
  Json newcomers = Json::array();
  for (const JobStatus& job : device.newcomers) newcomers.push_back(newcomer_json(job));
  return {{"name", device.name},
          {"bytes", device.bytes},
          {"used_bytes", device.used_bytes},
          {"busy_seconds", to_seconds(device.busy)},
          {"turns", device.turns},
          {"asked_to_give_way_seconds", to_seconds(device.asked_for)},
          {"in_turns", device.in_turns},
          {"closed", device.closed},
          {"finished_jobs", device.finished_jobs},
          {"jobs", std::move(jobs)},
          {"newcomers", std::move(newcomers)}};
}

}  // namespace

const char* to_string(JobState state) {
  switch (state) {
    case JobState::kIdle:
      return "idle";
    case JobState::kWaiting:
      return "waiting";
    case JobState::kHolding:
      return "holding";
  }
  return "idle";
}

Json to_json(const DaemonStatus& status) {
  Json devices = Json::array();
  for (const DeviceStatus& device : status.devices) devices.push_back(device_json(device));
  return {{"process", status.process},
          {"age_seconds", to_seconds(status.age)},
          {"connections", status.connections},
          {"refused_messages", status.refused_messages},
          {"devices", std::move(devices)}};
}

}  // namespace regen::share
