#include "regen/simulate/trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "regen/base/json.h"

namespace regen {
namespace {

enum class Thread : std::uint8_t { kCompute = 1, kToHost, kToDevice };

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr double kLongestSeconds = 1e6;  // beyond it nanoseconds would not fit their integer

double microseconds_per_unit(CostUnit unit, double cost) {
  const bool plain = unit == CostUnit::kSecond && cost <= kLongestSeconds;
  if (plain) return kMicrosecondsPerSecond;
  if (!(cost > 0) || !std::isfinite(cost)) return 1;
  return std::pow(10.0, std::min(300.0, 6 - std::floor(std::log10(cost))));
}

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

class TraceWriter {
 public:
  TraceWriter(const Graph& graph, const Plan& plan, const Simulation& simulation,
              const TraceOptions& options)
      : graph_(graph),
        plan_(plan),
        simulation_(simulation),
        options_(options),
        scale_(microseconds_per_unit(graph.cost_unit(), simulation.cost)),
        ran_(graph.num_ops(), false) {}

  std::string write() {
    write_head();
    const std::size_t steps = std::min(plan_.steps.size(), simulation_.records.size());
    for (std::size_t i = 0; i < steps; ++i) write_step(i);
    if (steps > 0) {
      write_counters(simulation_.records[steps - 1], simulation_.cost, true);
      write_series(steps - 1, simulation_.cost, true);
    }
    text_ += "\n]}\n";
    return std::move(text_);
  }

 private:
  void write_head() {
    text_ +=
        "{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"graph\": " + json_string(graph_.name()) +
        ", \"planner\": " + json_string(plan_.planner) + ", \"cost_unit\": \"" +
        std::string(to_string(graph_.cost_unit())) +
        "\", \"microseconds_per_unit\": " + format_exact(scale_) + "},\n\"traceEvents\": [\n";
    text_ += R"({"ph":"M","pid":1,"name":"process_name","args":{"name":)" +
             json_string(graph_.name()) + "}}";
    name_thread(Thread::kCompute, "compute");
    name_thread(Thread::kToHost, "to host");
    name_thread(Thread::kToDevice, "to device");
  }

  void name_thread(Thread thread, const char* name) {
    const std::string head =
        ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":" + std::to_string(static_cast<int>(thread));
    text_ += head + R"(,"name":"thread_name","args":{"name":")" + name + "\"}}";
    text_ += head + R"(,"name":"thread_sort_index","args":{"sort_index":)" +
             std::to_string(static_cast<int>(thread)) + "}}";
  }

  void write_step(std::size_t index) {
    const Step& step = plan_.steps[index];
    const StepRecord& record = simulation_.records[index];
    write_parts(step, record, index);
    write_series(index, step.kind() == StepKind::kCompute ? record.start : clock_);
  }

  void write_parts(const Step& step, const StepRecord& record, std::size_t index) {
    switch (step.kind()) {
      case StepKind::kCompute:
        write_wait(record.start, index);
        write_counters(record, record.start);
        write_compute(step, record, index);
        clock_ = record.end;
        break;
      case StepKind::kRelease:
        write_wait(record.end, index);
        clock_ = record.end;
        write_counters(record, clock_);
        break;
      case StepKind::kOffload:
        write_counters(record, clock_);
        write_copy(Thread::kToHost, "offload ", step.tensor(), record, index);
        break;
      case StepKind::kFetch:
        write_counters(record, clock_);
        write_copy(Thread::kToDevice, "fetch ", step.tensor(), record, index);
        break;
    }
  }

  void write_compute(const Step& step, const StepRecord& record, std::size_t index) {
    const OpId op = step.op();
    const VariantId variant = step.variant(graph_);
    Bytes made = 0;
    for (TensorId t : graph_.makes(variant)) made += graph_.bytes(t);
    std::string args = "\"step\":" + std::to_string(index) +
                       ",\"op\":" + std::to_string(op.index()) +
                       ",\"type\":" + json_string(graph_.type(op));
    if (op.index() < options_.modules.size()) {
      args += ",\"module\":" + json_string(options_.modules[op.index()]);
    }
    if (!graph_.name(variant).empty()) args += ",\"variant\":" + json_string(graph_.name(variant));
    args += std::string(",\"recompute\":\"") + (ran_[op] ? "yes" : "no") + "\"";
    args += ",\"bytes\":" + std::to_string(made) +
            ",\"workspace\":" + std::to_string(graph_.workspace(variant));
    ran_[op] = true;
    write_event(Thread::kCompute, graph_.name(op), to_string(graph_.phase(op)), record.start,
                record.end, args);
  }

  void write_copy(Thread thread, const std::string& verb, TensorId t, const StepRecord& record,
                  std::size_t index) {
    const std::string args = "\"step\":" + std::to_string(index) +
                             ",\"tensor\":" + std::to_string(t.index()) +
                             ",\"bytes\":" + std::to_string(graph_.bytes(t));
    write_event(thread, verb + graph_.name(t), "copy", record.start, record.end, args);
  }

  // What the compute queue waited before this step.
  void write_wait(double until, std::size_t index) {
    if (until <= clock_ || until - clock_ < options_.shortest_wait) return;
    write_event(Thread::kCompute, "wait", "stall", clock_, until,
                "\"step\":" + std::to_string(index));
  }

  void write_event(Thread thread, std::string_view name, std::string_view category, double start,
                   double end, const std::string& args) {
    // The end is rounded, not the duration, so that neighbours touch and never overlap.
    const std::int64_t from = nanoseconds(start);
    const std::int64_t length = std::max<std::int64_t>(0, nanoseconds(end) - from);
    text_ += ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(static_cast<int>(thread)) +
             ",\"ts\":" + microseconds(from) + ",\"dur\":" + microseconds(length) +
             ",\"name\":" + json_string(name) + ",\"cat\":\"" + std::string(category) +
             "\",\"args\":{" + args + "}}";
  }

  // Only changes, but the last values once more at the end, to which they last.
  void write_counters(const StepRecord& record, double time, bool always = false) {
    write_counter("device bytes", record.device_bytes, time, always, device_bytes_);
    write_counter("host bytes", record.host_bytes, time, always, host_bytes_);
  }

  void write_counter(const char* name, Bytes bytes, double time, bool always, Bytes& shown) {
    if (bytes == shown && !always) return;
    shown = bytes;
    text_ += ",\n{\"ph\":\"C\",\"pid\":1,\"ts\":" + microseconds(nanoseconds(time)) +
             ",\"name\":\"" + name + "\",\"args\":{\"bytes\":" + std::to_string(bytes) + "}}";
  }

  // The parts of the bytes as one counter; only what changes.
  void write_series(std::size_t step, double time, bool always = false) {
    if (options_.series.empty()) return;
    std::string args;
    bool changed = always || step == 0;
    for (const TraceSeries& part : options_.series) {
      changed = changed || part.bytes[step] != part.bytes[step - 1];
      args += (args.empty() ? "" : ",") + json_string(part.name) + ":" +
              std::to_string(part.bytes[step]);
    }
    if (!changed) return;
    text_ += ",\n{\"ph\":\"C\",\"pid\":1,\"ts\":" + microseconds(nanoseconds(time)) +
             R"(,"name":"device bytes by kind","args":{)" + args + "}}";
  }

  std::int64_t nanoseconds(double time) const {
    return static_cast<std::int64_t>(std::llround(time * scale_ * 1e3));
  }

  static std::string microseconds(std::int64_t nanoseconds) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%lld.%03lld",
                  static_cast<long long>(nanoseconds / 1000),
                  static_cast<long long>(nanoseconds % 1000));
    return text.data();
  }

  const Graph& graph_;
  const Plan& plan_;
  const Simulation& simulation_;
  const TraceOptions options_;
  const double scale_;
  IdVector<OpId, bool> ran_;
  double clock_ = 0;  // of the compute queue
  Bytes device_bytes_ = -1;
  Bytes host_bytes_ = -1;
  std::string text_;
};

}  // namespace

std::string chrome_trace(const Graph& graph, const Plan& plan, const Simulation& simulation,
                         const TraceOptions& options) {
  return TraceWriter(graph, plan, simulation, options).write();
}

}  // namespace regen
