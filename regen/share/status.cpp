#include "regen/share/status.h"

#include "regen/base/units.h"

namespace regen::share {
namespace {

Json job_json(const JobStatus& job) {
  const JobCounts& counts = job.counts;
  return {{"name", job.name},
          {"identity", job.identity},
          {"process", job.process},
          {"priority", job.priority},
          {"weight", job.weight},
          {"deadline_seconds", job.deadline ? Json(to_seconds(*job.deadline)) : Json(nullptr)},
          {"memory_bytes", job.memory},
          {"least_bytes", job.least_bytes},
          {"state", to_string(job.state)},
          {"asked_to_give_way", job.asked_to_give_way},
          {"age_seconds", to_seconds(job.age)},
          {"used_seconds", to_seconds(counts.used)},
          {"share", job.share()},
          {"waited_seconds", to_seconds(counts.waited)},
          {"longest_wait_seconds", to_seconds(counts.longest_wait)},
          {"grants", counts.grants},
          {"preemptions", counts.preemptions},
          {"missed_deadlines", counts.missed_deadlines}};
}

Json device_json(const DeviceStatus& device) {
  Json jobs = Json::array();
  for (const JobStatus& job : device.jobs) jobs.push_back(job_json(job));
  return {{"name", device.name},
          {"bytes", device.bytes},
          {"used_bytes", device.used_bytes},
          {"busy_seconds", to_seconds(device.busy)},
          {"asked_to_give_way_seconds", to_seconds(device.asked_for)},
          {"finished_jobs", device.finished_jobs},
          {"jobs", std::move(jobs)}};
}

std::string label_value(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return '"' + escaped + '"';
}

// The text of one metric: a head, then one line for each device or job.
class Metric {
 public:
  Metric(std::string name, const char* type, const char* help)
      : name_("regen_share_" + std::move(name)),
        text_("# HELP " + name_ + " " + help + "\n# TYPE " + name_ + " " + type + "\n") {}

  void add(const std::string& labels, double value) {
    text_ += name_ + (labels.empty() ? "" : "{" + labels + "}") + " " + format_exact(value) + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string name_;
  std::string text_;
};

template <typename Value>
std::string device_metric(const DaemonStatus& status, const char* name, const char* type,
                          const char* help, Value value) {
  Metric metric(name, type, help);
  for (const DeviceStatus& device : status.devices) {
    metric.add("device=" + label_value(device.name), static_cast<double>(value(device)));
  }
  return metric.text();
}

template <typename Value>
std::string job_metric(const DaemonStatus& status, const char* name, const char* type,
                       const char* help, Value value) {
  Metric metric(name, type, help);
  for (const DeviceStatus& device : status.devices) {
    for (const JobStatus& job : device.jobs) {
      metric.add("device=" + label_value(device.name) + ",job=" + label_value(job.name) +
                     ",identity=" + label_value(job.identity),
                 static_cast<double>(value(job)));
    }
  }
  return metric.text();
}

std::string daemon_metrics(const DaemonStatus& status) {
  Metric connections("connections", "gauge", "Open connections.");
  connections.add("", static_cast<double>(status.connections));
  Metric refused("refused_messages_total", "counter", "Messages answered by an error.");
  refused.add("", static_cast<double>(status.refused_messages));
  return connections.text() + refused.text();
}

std::string device_metrics(const DaemonStatus& status) {
  using Device = DeviceStatus;
  return device_metric(status, "device_bytes", "gauge", "Memory of the device.",
                       [](const Device& device) { return device.bytes; }) +
         device_metric(status, "device_used_bytes", "gauge", "Memory admitted to jobs.",
                       [](const Device& device) { return device.used_bytes; }) +
         device_metric(status, "device_busy_seconds_total", "counter", "Time that a job held it.",
                       [](const Device& device) { return to_seconds(device.busy); }) +
         device_metric(status, "device_finished_jobs_total", "counter", "Jobs that have left.",
                       [](const Device& device) { return device.finished_jobs; });
}

std::string job_metrics(const DaemonStatus& status) {
  using Job = JobStatus;
  return job_metric(status, "job_used_seconds_total", "counter", "Device time used.",
                    [](const Job& job) { return to_seconds(job.counts.used); }) +
         job_metric(status, "job_waited_seconds_total", "counter", "Time spent waiting.",
                    [](const Job& job) { return to_seconds(job.counts.waited); }) +
         job_metric(status, "job_grants_total", "counter", "Times that it got the device.",
                    [](const Job& job) { return job.counts.grants; }) +
         job_metric(status, "job_preemptions_total", "counter", "Times that it had to give way.",
                    [](const Job& job) { return job.counts.preemptions; }) +
         job_metric(status, "job_missed_deadlines_total", "counter", "Grants that came too late.",
                    [](const Job& job) { return job.counts.missed_deadlines; }) +
         job_metric(status, "job_memory_bytes", "gauge", "Memory admitted.",
                    [](const Job& job) { return job.memory; }) +
         job_metric(status, "job_holding", "gauge", "1 while it holds the device.",
                    [](const Job& job) { return job.state == JobState::kHolding ? 1 : 0; });
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

std::string to_prometheus(const DaemonStatus& status) {
  return daemon_metrics(status) + device_metrics(status) + job_metrics(status);
}

}  // namespace regen::share
