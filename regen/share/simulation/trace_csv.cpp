// Traces as tables: a header that names the columns, one job in each line. Fields have no commas;
// points are BYTES:SECONDS, separated by blanks.
#include <algorithm>
#include <array>
#include <map>

#include "regen/base/text.h"
#include "regen/share/simulation/trace.h"

namespace regen::share {
namespace {

constexpr std::array<std::string_view, 11> kColumns{"name",   "arrival",  "kind",   "seconds",
                                                    "steps",  "memory",   "points", "priority",
                                                    "weight", "deadline", "rate"};

std::vector<std::string_view> fields_of(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (std::size_t from = 0;;) {
    const std::size_t end = line.find(separator, from);
    fields.push_back(line.substr(from, end - from));
    if (end == std::string_view::npos) return fields;
    from = end + 1;
  }
}

std::string column_names() {
  std::string names;
  for (const std::string_view name : kColumns) {
    names += (names.empty() ? "" : ",") + std::string(name);
  }
  return names;
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view what) : rest_(text), what_(what) {}

  Result<Trace> read() {
    if (!next_line()) return error("is empty, expected a header with arrival and seconds");
    REGEN_TRY(read_header());
    while (next_line()) {
      if (line_.empty()) continue;
      if (trace_.jobs.size() == kMaxTraceJobs) return error("is one job too many");
      REGEN_TRY(read_row());
    }
    REGEN_TRY(check_trace(trace_, what_));
    return std::move(trace_);
  }

 private:
  Error error(const std::string& problem) const {
    return bad_input(on_one_line(what_, 200) + ": line " + std::to_string(line_number_) + " " +
                     problem);
  }

  bool next_line() {
    ++line_number_;
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    return true;
  }

  Status read_header() {
    for (const std::string_view name : fields_of(line_, ',')) {
      const bool known = std::find(kColumns.begin(), kColumns.end(), name) != kColumns.end();
      const bool again = std::find(header_.begin(), header_.end(), name) != header_.end();
      if (!known || again) {
        return error("has the column " + in_quotes(name) + (again ? " twice" : "") +
                     ", expected some of " + column_names());
      }
      header_.push_back(name);
    }
    return {};
  }

  // The field, or nothing where the column is missing or the field empty.
  std::string_view field(std::string_view name) const {
    const auto found = row_.find(name);
    return found == row_.end() ? std::string_view() : found->second;
  }

  Result<double> number(std::string_view name, double low, double high, double otherwise) const {
    const std::string_view text = field(name);
    if (text.empty()) return otherwise;
    const auto value = parse_double(text);
    if (value.ok() && *value >= low && *value <= high) return *value;
    return error(std::string(name) + " is " + in_quotes(text) + ", expected a number from " +
                 format_exact(low) + " to " + format_exact(high));
  }

  Result<std::int64_t> whole(std::string_view name, std::int64_t low, std::int64_t high,
                             std::int64_t otherwise) const {
    const std::string_view text = field(name);
    if (text.empty()) return otherwise;
    const auto value = parse_int(text);
    if (value.ok() && *value >= low && *value <= high) return *value;
    return error(std::string(name) + " is " + in_quotes(text) + ", expected a whole number from " +
                 std::to_string(low) + " to " + std::to_string(high));
  }

  Result<Bytes> bytes(std::string_view text) const {
    const auto value = parse_bytes(text);
    if (value.ok()) return *value;
    return error(value.error().message);
  }

  Status read_points(TraceJob& job) const {
    for (const std::string_view text : fields_of(field("points"), ' ')) {
      const std::size_t colon = text.find(':');
      const auto seconds =
          parse_double(text.substr(colon == std::string_view::npos ? 0 : colon + 1));
      const bool good = colon != std::string_view::npos && seconds.ok() &&
                        *seconds <= kMaxSeconds && *seconds > 0 && from_seconds(*seconds) >= 1;
      if (!good) {
        return error("has the point " + in_quotes(text) + ", expected BYTES:SECONDS above 0");
      }
      REGEN_ASSIGN(const Bytes size, bytes(text.substr(0, colon)));
      job.points.push_back({size, from_seconds(*seconds)});
    }
    if (job.points.size() > kMaxPoints) {
      return error("has " + std::to_string(job.points.size()) + " points, expected at most " +
                   std::to_string(kMaxPoints));
    }
    if (!field("seconds").empty() || !field("memory").empty()) {
      return error("has points and seconds or memory, expected one of them");
    }
    return {};
  }

  Status read_needs(TraceJob& job) const {
    REGEN_ASSIGN(job.steps, whole("steps", 1, kMaxTraceSteps, 1));
    if (!field("points").empty()) return read_points(job);
    MemoryPoint point;
    if (!field("memory").empty()) {
      REGEN_ASSIGN(point.bytes, bytes(field("memory")));
    }
    if (field("seconds").empty()) return error("has no seconds, expected them or points");
    REGEN_ASSIGN(const double all, number("seconds", 1e-9, kMaxSeconds, 0));
    point.time = std::max<Nanoseconds>(1, (from_seconds(all) + job.steps / 2) / job.steps);
    job.points.push_back(point);
    return {};
  }

  Status read_kind(TraceJob& job) const {
    const std::string_view kind = field("kind");
    if (!kind.empty() && kind != "training" && kind != "inference") {
      return error("kind is " + in_quotes(kind) + ", expected training or inference");
    }
    job.kind = kind == "inference" ? JobKind::kInference : JobKind::kTraining;
    if (field("rate").empty() == (job.kind == JobKind::kInference)) {
      return error(job.kind == JobKind::kInference
                       ? "is inference without a rate, expected requests in a second"
                       : "is training with a rate, expected it of inference only");
    }
    REGEN_ASSIGN(job.rate, number("rate", 1e-6, 1e6, 0));
    return {};
  }

  Status read_row() {
    const auto fields = fields_of(line_, ',');
    if (fields.size() != header_.size()) {
      return error("has " + std::to_string(fields.size()) + " fields, expected " +
                   std::to_string(header_.size()));
    }
    row_.clear();
    for (std::size_t i = 0; i < fields.size(); ++i) row_[header_[i]] = fields[i];
    TraceJob job{.name = std::string(field("name"))};
    if (job.name.empty()) job.name = "job " + std::to_string(trace_.jobs.size());
    if (!is_utf8(job.name)) return error("has a name that is not UTF-8");
    if (field("arrival").empty()) return error("has no arrival, expected seconds");
    REGEN_ASSIGN(const double arrival, number("arrival", 0, kMaxSeconds, 0));
    job.arrival = from_seconds(arrival);
    REGEN_TRY(read_needs(job));
    REGEN_ASSIGN(job.priority, whole("priority", 0, kMaxPriority, 0));
    REGEN_ASSIGN(job.weight, number("weight", kMinWeight, kMaxWeight, 1));
    if (!field("deadline").empty()) {
      REGEN_ASSIGN(const double deadline, number("deadline", 0, kMaxSeconds, 0));
      job.deadline = from_seconds(deadline);
    }
    REGEN_TRY(read_kind(job));
    trace_.jobs.push_back(std::move(job));
    return {};
  }

  std::string_view rest_;
  std::string_view what_;
  std::string_view line_;
  std::size_t line_number_ = 0;
  std::vector<std::string_view> header_;
  std::map<std::string_view, std::string_view> row_;
  Trace trace_;
};

std::string csv_row(const TraceJob& job) {
  const bool inference = job.kind == JobKind::kInference;
  std::string points;
  for (const MemoryPoint& point : job.points) {
    points += (points.empty() ? "" : " ") + std::to_string(point.bytes) + ":" +
              format_exact(to_seconds(point.time));
  }
  std::string name = job.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ',' || c == '\n' || c == '\r'; }, ' ');
  return name + "," + format_exact(to_seconds(job.arrival)) + "," +
         (inference ? "inference" : "training") + "," + std::to_string(job.steps) + "," + points +
         "," + std::to_string(job.priority) + "," + format_exact(job.weight) + "," +
         (job.deadline ? format_exact(to_seconds(*job.deadline)) : "") + "," +
         (inference ? format_exact(job.rate) : "") + "\n";
}

}  // namespace

Result<Trace> parse_trace_csv(std::string_view text, std::string_view what) {
  return Reader(text, what).read();
}

std::string write_trace_csv(const Trace& trace) {
  std::string text = "name,arrival,kind,steps,points,priority,weight,deadline,rate\n";
  for (const TraceJob& job : trace.jobs) text += csv_row(job);
  return text;
}

}  // namespace regen::share
