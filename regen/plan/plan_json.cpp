#include "regen/plan/plan_json.h"
#include "regen/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>

namespace regen {
namespace {

constexpr std::string_view kFormatName = "regen-plan";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::string_view kLetters = "corf";  // by StepKind
constexpr std::size_t kStepsPerLine = 20;

enum class Field : std::uint8_t {
  kFormat,
  kVersion,
  kPlanner,
  kGraph,
  kSteps,
  kAddresses,
  kPredicted,
  kNone,
};
constexpr std::array<std::string_view, 7> kFieldNames{"format", "version",   "planner",  "graph",
                                                      "steps",  "addresses", "predicted"};

// Reads a whole number at the start of `text` and removes it.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::optional<Step> parse_step(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const char letter = text[0];
  text.remove_prefix(1);
  const auto id = take_number(text);
  if (!id || *id == OpId::kNoneValue) return std::nullopt;
  std::uint32_t choice = 0;
  if (letter == 'c' && text.starts_with('.')) {
    text.remove_prefix(1);
    const auto number = take_number(text);
    if (!number || *number > std::numeric_limits<std::uint16_t>::max()) return std::nullopt;
    choice = *number;
  }
  if (!text.empty()) return std::nullopt;
  switch (letter) {
    case 'c':
      return Step::compute(OpId(*id), choice);
    case 'o':
      return Step::offload(TensorId(*id));
    case 'r':
      return Step::release(TensorId(*id));
    case 'f':
      return Step::fetch(TensorId(*id));
    default:
      return std::nullopt;
  }
}

std::optional<std::uint64_t> parse_fingerprint(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || status != std::errc() || end != text.data() + 16) return std::nullopt;
  return value;
}

// Takes the values of the document as they are read, without building a tree of them: that
// is what makes a million steps cheap, and allows a `predicted` of any size and depth.
// Each function is called by the JSON reader and returns whether to go on.
class PlanReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit PlanReader(std::string_view source) : source_(source) {}

  const std::string& problem() const { return problem_; }
  bool read(Field field) const { return read_[static_cast<std::size_t>(field)]; }
  Plan take_plan() { return std::move(plan_); }

  bool null() override { return skipping() || refuse("null found"); }
  bool boolean(bool value) override {
    return skipping() || refuse(value ? "true found" : "false found");
  }
  bool number_integer(std::int64_t value) override { return skipping() || take_integer(value); }
  bool number_unsigned(std::uint64_t value) override {
    if (skipping()) return true;
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return take_integer(static_cast<std::int64_t>(value));
    }
    return refuse(std::to_string(value) + " is out of range");
  }
  bool number_float(double, const std::string& text) override {
    return skipping() || refuse(in_quotes(text) + " found");
  }
  bool string(std::string& value) override { return skipping() || take_string(value); }
  bool binary(binary_t&) override { return refuse("binary value found"); }

  bool start_object(std::size_t) override {
    if (skipping()) return ++skip_depth_, true;
    if (depth_ == 0) return ++depth_, true;
    return refuse("an object found");
  }
  bool key(std::string& name) override { return skip_depth_ > 0 || take_key(name); }
  bool end_object() override {
    if (skip_depth_ > 0) return --skip_depth_, true;
    return --depth_, true;
  }
  bool start_array(std::size_t) override {
    if (skipping()) return ++skip_depth_, true;
    const bool takes_array = field_ == Field::kSteps || field_ == Field::kAddresses;
    if (depth_ != 1 || !takes_array) return refuse("an array found");
    if (field_ == Field::kAddresses) plan_.addresses.emplace();
    return ++depth_, true;
  }
  bool end_array() override {
    if (skip_depth_ > 0) return --skip_depth_, true;
    return --depth_, true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    std::string text = error.what();
    if (const auto at = text.find("at line"); at != std::string::npos) text = text.substr(at);
    problem_ = source_ + ": not valid JSON " + text;
    return false;
  }

 private:
  bool skipping() const { return field_ == Field::kPredicted; }

  std::string place() const {
    if (depth_ == 0) return "";
    std::string text = std::string(kFieldNames[static_cast<std::size_t>(field_)]);
    if (depth_ == 1) return text + ": ";
    const std::size_t index =
        field_ == Field::kSteps ? plan_.steps.size() : plan_.addresses->size();
    return text + "[" + std::to_string(index) + "]: ";
  }

  std::string_view expected() const {
    if (depth_ == 0) return "an object";
    switch (field_) {
      case Field::kFormat:
        return "\"regen-plan\"";
      case Field::kVersion:
        return "1";
      case Field::kPlanner:
        return "a string";
      case Field::kGraph:
        return "16 hexadecimal digits";
      case Field::kSteps:
        return depth_ == 1 ? "an array"
                           : "c, o, r or f and an id below 4294967295, after c also a variant "
                             "below 65536, as in \"c3.1\"";
      case Field::kAddresses:
        return depth_ == 1 ? "an array" : "a whole number of bytes";
      default:
        return "";
    }
  }

  bool refuse(const std::string& found) {
    problem_ = source_ + ": " + place() + found + ", expected " + std::string(expected());
    return false;
  }

  bool take_key(const std::string& name) {
    const auto* found = std::find(kFieldNames.begin(), kFieldNames.end(), name);
    if (found == kFieldNames.end()) {
      problem_ = source_ + ": unknown field " + in_quotes(name) + ", expected those of a plan";
      return false;
    }
    const auto index = static_cast<std::size_t>(found - kFieldNames.begin());
    field_ = static_cast<Field>(index);
    if (read_[index]) {
      problem_ = source_ + ": field '" + name + "' appears twice";
      return false;
    }
    read_[index] = true;
    return true;
  }

  bool take_integer(std::int64_t value) {
    if (depth_ == 1 && field_ == Field::kVersion && value == kFormatVersion) return true;
    if (depth_ == 2 && field_ == Field::kAddresses) {
      plan_.addresses->push_back(value);
      return true;
    }
    return refuse(std::to_string(value) + " found");
  }

  bool take_string(const std::string& value) {
    if (depth_ == 2 && field_ == Field::kSteps) {
      const auto step = parse_step(value);
      if (!step) return refuse(in_quotes(value) + " found");
      plan_.steps.push_back(*step);
      return true;
    }
    if (depth_ == 1 && field_ == Field::kFormat && value == kFormatName) return true;
    if (depth_ == 1 && field_ == Field::kPlanner) {
      plan_.planner = value;
      return true;
    }
    if (depth_ == 1 && field_ == Field::kGraph) {
      const auto fingerprint = parse_fingerprint(value);
      if (!fingerprint) return refuse(in_quotes(value) + " found");
      plan_.fingerprint = *fingerprint;
      return true;
    }
    return refuse(in_quotes(value) + " found");
  }

  std::string source_;
  std::string problem_;
  Plan plan_;
  int depth_ = 0;               // 1 inside the document, 2 inside an array of ours
  std::size_t skip_depth_ = 0;  // brackets open inside `predicted`
  Field field_ = Field::kNone;
  std::array<bool, 7> read_{};
};

template <typename Number>
void append_number(std::string& text, Number value) {
  std::array<char, 24> digits{};
  const auto [end, status] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  static_cast<void>(status);  // 24 characters hold any 64-bit number
  text.append(digits.data(), end);
}

void append_step(std::string& text, const Step& step) {
  text += '"';
  text += kLetters[static_cast<std::size_t>(step.kind())];
  const bool compute = step.kind() == StepKind::kCompute;
  append_number(text, compute ? step.op().index() : step.tensor().index());
  if (step.choice() > 0) {
    text += '.';
    append_number(text, step.choice());
  }
  text += '"';
}

// Long lists are broken into lines so that editors and diffs can cope with them.
template <typename List, typename Append>
void append_list(std::string& text, const List& list, Append append) {
  text += '[';
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text += i % kStepsPerLine == 0 ? ",\n" : ",";
    append(text, list[i]);
  }
  text += ']';
}

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Result<Plan> parse_plan(std::string_view text, std::string_view source) {
  PlanReader reader{source};
  if (!nlohmann::json::sax_parse(text, &reader)) return bad_input(reader.problem());
  for (Field field : {Field::kFormat, Field::kVersion, Field::kSteps}) {
    if (!reader.read(field)) {
      return bad_input(std::string(source) + ": field '" +
                       std::string(kFieldNames[static_cast<std::size_t>(field)]) + "' is missing");
    }
  }
  return reader.take_plan();
}

std::string write_plan(const Plan& plan, const Json& predicted) {
  std::array<char, 17> fingerprint{};
  std::snprintf(fingerprint.data(), fingerprint.size(), "%016llx",
                static_cast<unsigned long long>(plan.fingerprint));
  std::string text = "{\n\"format\": \"" + std::string(kFormatName) +
                     "\",\n\"version\": " + std::to_string(kFormatVersion) +
                     ",\n\"planner\": " + dump(plan.planner) + ",\n\"graph\": \"" +
                     fingerprint.data() + "\",\n";
  text.reserve(plan.steps.size() * 12 + 1000);
  if (!predicted.empty()) text += "\"predicted\": " + dump(predicted) + ",\n";
  text += "\"steps\": ";
  append_list(text, plan.steps, append_step);
  if (plan.addresses) {
    text += ",\n\"addresses\": ";
    append_list(text, *plan.addresses, append_number<Bytes>);
  }
  return text + "\n}\n";
}

}  // namespace regen
