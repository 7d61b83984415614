#include "cli/share/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "cli/output/output.h"
#include "cli/output/visible_text.h"
#include "regen/base/text.h"

namespace regen::cli {
namespace {

constexpr std::string_view kGap = "  ";
constexpr std::size_t kUnlimited = 1 << 16;
constexpr std::size_t kSparkline = 20;

// A daemon of an earlier release may not say it.
std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string percentage(const std::optional<double>& fraction) {
  return fraction ? decimals(100 * *fraction, 1) + " %" : "-";
}

std::string rate_text(const std::optional<double>& rate) {
  return rate ? decimals(*rate, *rate >= 100 ? 0 : 1) : "-";
}

std::string time_text(const std::optional<double>& seconds) {
  return seconds ? format_cost(*seconds, CostUnit::kSecond) : "-";
}

std::string bytes_text(const Json& object, const char* key) {
  return format_bytes(object[key].get<Bytes>());
}

// The newest at the right; higher is more.
std::string sparkline(const std::deque<double>& values, bool utf8) {
  constexpr std::array kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array kMarks{"_", ".", "-", "~", "=", "+", "*", "#"};
  std::string line;
  const std::size_t shown = std::min(values.size(), kSparkline);
  for (std::size_t i = values.size() - shown; i < values.size(); ++i) {
    const double level = std::floor(std::clamp(values[i], 0.0, 1.0) * 7.999);
    line += (utf8 ? kBlocks : kMarks)[static_cast<std::size_t>(level)];
  }
  return line;
}

// Of several things that are true, the one that an operator would act on.
std::string state_of(const Json& job) {
  if (job["over_limit"].get<bool>()) return "over limit";
  if (job["asked_to_give_way"].get<bool>()) return "giving way";
  const std::string memory = job["memory_state"].get<std::string>();
  return memory == "settled" ? job["state"].get<std::string>() : memory;
}

// A column of the table of jobs.
struct TopColumn {
  std::string_view head;
  std::size_t width;  // at least
  Side side;
  int leaves;  // in a narrow terminal: the largest leave first; 0: never
};

// In the order in which they stand. When they leave is said in docs/reference/command-line-running.md.
enum TopField : std::size_t {
  kJob,
  kState,
  kTime,
  kHeld,
  kLimit,
  kPriority,
  kWeight,
  kTurns,
  kPauses,
  kWaitP50,
  kWaitP95,
  kRequestP50,
  kRequestP95,
  kHistoryLine,
};
constexpr std::array kColumns{
    TopColumn{"job", 12, Side::kLeft, 0},      TopColumn{"state", 7, Side::kLeft, 0},
    TopColumn{"time", 7, Side::kRight, 0},     TopColumn{"held", 8, Side::kRight, 1},
    TopColumn{"limit", 8, Side::kRight, 3},    TopColumn{"prio", 4, Side::kRight, 4},
    TopColumn{"weight", 6, Side::kRight, 9},   TopColumn{"turns/s", 7, Side::kRight, 7},
    TopColumn{"pauses", 6, Side::kRight, 5},   TopColumn{"wait p50", 8, Side::kRight, 2},
    TopColumn{"wait p95", 8, Side::kRight, 2}, TopColumn{"req p50", 7, Side::kRight, 8},
    TopColumn{"req p95", 7, Side::kRight, 8},  TopColumn{"history", kSparkline, Side::kLeft, 6},
};
using TopRow = std::array<std::string, kColumns.size()>;

std::size_t room_of(const TopShape& shape) {
  return shape.columns > 0 ? shape.columns : kUnlimited;
}

std::size_t total_of(const std::vector<std::size_t>& fields) {
  std::size_t total = 0;
  for (const std::size_t field : fields) total += kColumns[field].width + kGap.size();
  return total - kGap.size();
}

bool knows_requests(const Json& jobs) {
  return std::any_of(jobs.begin(), jobs.end(),
                     [](const Json& job) { return number(job, "requests").has_value(); });
}

// Which columns there are depends on the width, not on the numbers of the moment: they do not move.
std::vector<std::size_t> columns_for(const TopShape& shape, bool requests) {
  std::vector<std::size_t> fields;
  for (std::size_t field = 0; field < kColumns.size(); ++field) {
    if (requests || (field != kRequestP50 && field != kRequestP95)) fields.push_back(field);
  }
  const auto leaves = [](std::size_t field) { return kColumns[field].leaves; };
  while (shape.columns > 0 && total_of(fields) > shape.columns) {
    const int next =
        leaves(*std::max_element(fields.begin(), fields.end(), [&](std::size_t a, std::size_t b) {
          return leaves(a) < leaves(b);
        }));
    if (next == 0) break;
    std::erase_if(fields, [&](std::size_t field) { return leaves(field) == next; });
  }
  return fields;
}

// What is left goes to the columns that need it.
std::vector<std::size_t> widths_for(const std::vector<std::size_t>& fields,
                                    const std::vector<TopRow>& rows, const TopShape& shape) {
  constexpr std::size_t kMost = 40;
  const std::size_t all = room_of(shape);
  std::size_t room = all - std::min(all, total_of(fields));
  std::vector<std::size_t> widths;
  for (const std::size_t field : fields) widths.push_back(kColumns[field].width);
  // The name is the last one to be asked.
  for (std::size_t asked = fields.size(); asked-- > 0;) {
    std::size_t need = 0;
    for (const TopRow& row : rows) need = std::max(need, columns_of(row[fields[asked]]));
    const std::size_t wanted = std::max(widths[asked], std::min(need, kMost));
    const std::size_t more = std::min(room, wanted - widths[asked]);
    widths[asked] += more;
    room -= more;
  }
  return widths;
}

std::string without_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string row_text(const TopRow& row, const std::vector<std::size_t>& fields,
                     const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    line += (i == 0 ? "" : std::string(kGap)) +
            in_columns(row[fields[i]], widths[i], kColumns[fields[i]].side);
  }
  return without_end(line);
}

std::string cut(const std::string& line, std::size_t columns) {
  return columns_of(line) > columns ? in_columns(line, columns) : line;
}

// Parts side by side, on as many lines as they need.
std::vector<std::string> wrapped(const std::vector<std::string>& parts, const TopShape& shape) {
  const std::size_t all = room_of(shape);
  std::vector<std::string> lines(1);
  for (const std::string& part : parts) {
    const std::size_t used = columns_of(lines.back());
    const bool fits = used == 0 || used + kGap.size() + columns_of(part) <= all;
    if (!fits) lines.emplace_back(kGap);
    lines.back() += (used == 0 || !fits ? "" : std::string(kGap)) + part;
  }
  for (std::string& line : lines) line = cut(line, all);
  return lines;
}

}  // namespace

std::map<TopView::Key, TopView::Count> TopView::counts_of(const Json& report) {
  std::map<Key, Count> counts;
  for (const Json& device : report["devices"]) {
    const std::string name = device["name"].get<std::string>();
    double turns = 0;
    for (const Json& job : device["jobs"]) {
      turns += job["grants"].get<double>();
      counts[{name, job["identity"].get<std::string>()}] = {job["used_seconds"].get<double>(),
                                                            job["grants"].get<double>()};
    }
    counts[{name, ""}] = {device["busy_seconds"].get<double>(),
                          number(device, "turns").value_or(turns)};
  }
  return counts;
}

void TopView::add(Json report) {
  const bool again = report_.is_object() && report_["process"] == report["process"];
  const double seconds =
      again ? report["age_seconds"].get<double>() - report_["age_seconds"].get<double>() : 0;
  if (again && seconds <= 0) return;
  const auto before = again ? counts_of(report_) : std::map<Key, Count>();
  std::map<Key, Rate> rates;
  for (const auto& [key, count] : counts_of(report)) {
    Rate& rate = rates[key];
    if (!again) continue;
    if (const auto known = rates_.find(key); known != rates_.end()) rate = known->second;
    const auto former = before.find(key);
    // What came meanwhile began with nothing.
    const bool goes_on = former != before.end() && former->second.turns <= count.turns;
    const Count began = goes_on ? former->second : Count();
    rate.fraction = (count.time - began.time) / seconds;
    rate.turns = (count.turns - began.turns) / seconds;
    rate.history.push_back(*rate.fraction);
    if (rate.history.size() > kHistory) rate.history.pop_front();
  }
  rates_ = std::move(rates);
  report_ = std::move(report);
}

TopView::Rate TopView::rate(const Json& device, const std::string& identity) const {
  const auto found = rates_.find({device["name"].get<std::string>(), identity});
  return found == rates_.end() ? Rate() : found->second;
}

std::string TopView::summary() const {
  const auto seconds = report_["age_seconds"].get<std::int64_t>();
  const std::string hours = seconds >= 3600 ? std::to_string(seconds / 3600) + " h " : "";
  return "up " + hours + std::to_string(seconds % 3600 / 60) + " min, " +
         format_count(report_["connections"].get<std::size_t>(), "connection");
}

std::vector<std::string> TopView::device_lines(const Json& device, const TopShape& shape) const {
  const Rate now = rate(device, "");
  const Json& jobs = device["jobs"];
  const auto holder = std::find_if(jobs.begin(), jobs.end(),
                                   [](const Json& job) { return job["state"] == "holding"; });
  std::string held = "free";
  if (holder != jobs.end()) {
    held = "held by " + visible_text((*holder)["name"].get<std::string>(), shape.utf8);
  } else if (device["closed"].get<bool>()) {
    held = "closed: a former holder is in its last quantum";
  }
  std::vector<std::string> parts{
      visible_text(device["name"].get<std::string>(), shape.utf8), held,
      bytes_text(device, "used_bytes") + " of " + bytes_text(device, "bytes") +
          (device["in_turns"].get<bool>() ? " in turns" : ""),
      "busy " + percentage(now.fraction), rate_text(now.turns) + " turns/s"};
  if (!now.history.empty()) parts.push_back(sparkline(now.history, shape.utf8));
  return wrapped(parts, shape);
}

std::vector<std::string> TopView::job_lines(const Json& device, const TopShape& shape) const {
  const Json& jobs = device["jobs"];
  if (jobs.empty()) return {};
  std::vector<TopRow> rows(1);
  for (std::size_t field = 0; field < kColumns.size(); ++field)
    rows[0][field] = kColumns[field].head;
  for (const Json& job : jobs) {
    const Rate now = rate(device, job["identity"].get<std::string>());
    rows.push_back(
        {visible_text(job["name"].get<std::string>(), shape.utf8), state_of(job),
         percentage(now.fraction), bytes_text(job, "held_bytes"), bytes_text(job, "limit_bytes"),
         job["priority"].dump(), format_exact(job["weight"].get<double>()), rate_text(now.turns),
         job["preemptions"].dump(), time_text(number(job, "wait_p50_seconds")),
         time_text(number(job, "wait_p95_seconds")), time_text(number(job, "request_p50_seconds")),
         time_text(number(job, "request_p95_seconds")), sparkline(now.history, shape.utf8)});
  }
  const auto fields = columns_for(shape, knows_requests(jobs));
  const auto widths = widths_for(fields, rows, shape);
  std::vector<std::string> lines;
  for (const TopRow& row : rows) lines.push_back(row_text(row, fields, widths));
  for (std::string& line : lines) line = cut(line, room_of(shape));
  lines[0] = bold(lines[0]);
  return lines;
}

std::vector<std::string> TopView::lines(const TopShape& shape) const {
  std::vector<std::string> lines;
  for (const Json& device : report_["devices"]) {
    if (!lines.empty()) lines.emplace_back();
    for (std::string& line : device_lines(device, shape)) lines.push_back(std::move(line));
    for (std::string& line : job_lines(device, shape)) lines.push_back(std::move(line));
    for (const Json& job : device["newcomers"]) {
      const std::vector<std::string> parts{
          "waits for memory:", visible_text(job["name"].get<std::string>(), shape.utf8),
          bytes_text(job, "memory_bytes"), "for " + time_text(number(job, "waited_seconds"))};
      for (std::string& line : wrapped(parts, shape)) lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace regen::cli
