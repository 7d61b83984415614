#include "regen/share/report/prometheus.h"

#include <array>

#include "regen/base/units.h"

namespace regen::share {
namespace {

// A metric and the field of the report that it shows.
struct Metric {
  const char* name;
  const char* type;
  const char* field;
  const char* help;
};

constexpr std::array kDaemonMetrics{
    Metric{"connections", "gauge", "connections", "Open connections."},
    Metric{"refused_messages_total", "counter", "refused_messages",
           "Messages answered by an error."},
};
constexpr std::array kDeviceMetrics{
    Metric{"device_bytes", "gauge", "bytes", "Memory of the device."},
    Metric{"device_used_bytes", "gauge", "used_bytes", "Memory that counts as some job's."},
    Metric{"device_in_turns", "gauge", "in_turns", "1 while jobs take turns with their memory."},
    Metric{"device_newcomers", "gauge", "newcomers", "Jobs that wait for memory."},
    Metric{"device_asked_to_give_way_seconds", "gauge", "asked_to_give_way_seconds",
           "How long the holder has been asked to give way."},
    Metric{"device_turns_total", "counter", "turns", "Times that some job got it."},
    Metric{"device_busy_seconds_total", "counter", "busy_seconds", "Time that a job held it."},
    Metric{"device_finished_jobs_total", "counter", "finished_jobs", "Jobs that have left."},
};
constexpr std::array kJobMetrics{
    Metric{"job_used_seconds_total", "counter", "used_seconds", "Device time used."},
    Metric{"job_waited_seconds_total", "counter", "waited_seconds", "Time spent waiting."},
    Metric{"job_wait_p50_seconds", "gauge", "wait_p50_seconds",
           "Half of its grants in the last two minutes came within this time."},
    Metric{"job_wait_p95_seconds", "gauge", "wait_p95_seconds",
           "Of its grants in the last two minutes 95 of 100 came within this time."},
    Metric{"job_requests_total", "counter", "requests", "Requests that it says it has answered."},
    Metric{"job_request_p50_seconds", "gauge", "request_p50_seconds",
           "Half of its requests in the last two minutes took no longer, as it says."},
    Metric{"job_request_p95_seconds", "gauge", "request_p95_seconds",
           "Of its requests in the last two minutes 95 of 100 took no longer, as it says."},
    Metric{"job_grants_total", "counter", "grants", "Times that it got the device."},
    Metric{"job_preemptions_total", "counter", "preemptions", "Times that it had to give way."},
    Metric{"job_missed_deadlines_total", "counter", "missed_deadlines",
           "Grants that came too late."},
    Metric{"job_memory_bytes", "gauge", "memory_bytes", "Memory asked for."},
    Metric{"job_limit_bytes", "gauge", "limit_bytes", "Memory that it may use now."},
    Metric{"job_held_bytes", "gauge", "held_bytes", "Memory that counts as its own."},
    Metric{"job_used_bytes", "gauge", "used_bytes", "Memory that it says it uses."},
    Metric{"job_over_limit", "gauge", "over_limit", "1 while it says it uses more than its limit."},
    Metric{"job_weight", "gauge", "weight", "Its weight among jobs of its priority."},
    Metric{"job_priority", "gauge", "priority", "Its priority; higher goes first."},
};

std::string label(const char* name, const Json& value) {
  std::string escaped;
  for (char c : value.get<std::string>()) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return std::string(name) + "=\"" + escaped + "\"";
}

std::string head(const Metric& metric) {
  const std::string name = std::string("regen_share_") + metric.name;
  return "# HELP " + name + " " + metric.help + "\n# TYPE " + name + " " + metric.type + "\n";
}

// Lists count as their length.
double number(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  return value.is_array() ? static_cast<double>(value.size()) : value.get<double>();
}

// Nothing for what is not known.
std::string sample(const Metric& metric, const std::string& labels, const Json& object) {
  if (object[metric.field].is_null()) return "";
  return std::string("regen_share_") + metric.name + (labels.empty() ? "" : "{" + labels + "}") +
         " " + format_exact(number(object[metric.field])) + "\n";
}

std::string job_samples(const Metric& metric, const Json& device) {
  std::string text;
  for (const Json& job : device["jobs"]) {
    text += sample(metric,
                   label("device", device["name"]) + "," + label("job", job["name"]) + "," +
                       label("identity", job["identity"]),
                   job);
  }
  return text;
}

}  // namespace

std::string prometheus_text(const Json& report) {
  std::string text;
  for (const Metric& metric : kDaemonMetrics) text += head(metric) + sample(metric, "", report);
  for (const Metric& metric : kDeviceMetrics) {
    text += head(metric);
    for (const Json& device : report["devices"]) {
      text += sample(metric, label("device", device["name"]), device);
    }
  }
  for (const Metric& metric : kJobMetrics) {
    text += head(metric);
    for (const Json& device : report["devices"]) text += job_samples(metric, device);
  }
  return text;
}

}  // namespace regen::share
