#include "regen/plan/pack/lifetimes_csv.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <unordered_set>

namespace regen {
namespace {

enum Column : std::size_t { kId, kLower, kUpper, kSize, kColumns };
constexpr std::array<std::string_view, kColumns> kNames{"id", "lower", "upper", "size"};

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 60;
  if (text.size() <= kShown) return "'" + std::string(text) + "'";
  return "'" + std::string(text.substr(0, kShown)) + "...'";
}

std::vector<std::string_view> split_fields(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t from = 0;;) {
    const std::size_t comma = line.find(',', from);
    fields.push_back(line.substr(from, comma - from));
    if (comma == std::string_view::npos) return fields;
    from = comma + 1;
  }
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view what) : rest_(text), what_(what) {}

  Result<LifetimeTable> read() {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
    if (!next_line()) return error("no line", "a header such as id,lower,upper,size");
    REGEN_TRY(read_header());
    while (next_line()) {
      if (!line_.empty()) REGEN_TRY(read_row());
    }
    return std::move(table_);
  }

 private:
  bool next_line() {
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    ++line_number_;
    return true;
  }

  Status read_header() {
    const auto header = split_fields(line_);
    width_ = header.size();
    for (std::size_t column = 0; column < kColumns; ++column) {
      const auto found = std::ranges::find(header, kNames[column]);
      const std::string name = "column " + quoted(kNames[column]);
      if (found == header.end()) {
        return error("no " + name + " in header " + quoted(line_), "id, lower, upper and size");
      }
      if (std::find(found + 1, header.end(), kNames[column]) != header.end()) {
        return error(name + " twice in header " + quoted(line_), "each column once");
      }
      place_[column] = static_cast<std::size_t>(found - header.begin());
    }
    return {};
  }

  Status read_row() {
    const auto fields = split_fields(line_);
    if (fields.size() != width_) {
      return error(std::to_string(fields.size()) + " fields in " + quoted(line_),
                   std::to_string(width_) + " as in the header");
    }
    std::array<std::string_view, kColumns> row;
    for (std::size_t column = 0; column < kColumns; ++column) row[column] = fields[place_[column]];
    if (row[kId].empty()) return error("empty id", "a name");
    if (!seen_.insert(row[kId]).second) {
      return error("id " + quoted(row[kId]) + " again", "each id once");
    }
    REGEN_ASSIGN(const Lifetime item, read_lifetime(row));
    table_.ids.emplace_back(row[kId]);
    table_.lifetimes.push_back(item);
    return {};
  }

  Result<Lifetime> read_lifetime(const std::array<std::string_view, kColumns>& row) {
    Lifetime item;
    REGEN_ASSIGN(item.lower, read_int(row, kLower));
    REGEN_ASSIGN(item.upper, read_int(row, kUpper));
    REGEN_ASSIGN(item.size, read_int(row, kSize));
    if (item.upper <= item.lower) {
      return error("upper " + std::to_string(item.upper),
                   "more than lower, which is " + std::to_string(item.lower));
    }
    if (item.size < 0 || item.size > kMaxBytes) {
      return error("size " + std::to_string(item.size), "0 to " + std::to_string(kMaxBytes));
    }
    return item;
  }

  Result<std::int64_t> read_int(const std::array<std::string_view, kColumns>& row, Column column) {
    auto value = parse_int(row[column]);
    if (value.ok()) return value;
    return error(std::string(kNames[column]) + " " + quoted(row[column]),
                 "a whole number of 64 bits");
  }

  Error error(const std::string& problem, const std::string& expected) const {
    const std::size_t line = std::max<std::size_t>(line_number_, 1);
    return bad_input(std::string(what_) + ":" + std::to_string(line) + ": " + problem +
                     ", expected " + expected);
  }

  std::string_view rest_;
  std::string_view what_;
  std::string_view line_;
  std::size_t line_number_ = 0;
  std::size_t width_ = 0;
  std::array<std::size_t, kColumns> place_{};
  std::unordered_set<std::string_view> seen_;
  LifetimeTable table_;
};

}  // namespace

Result<LifetimeTable> parse_lifetimes_csv(std::string_view text, std::string_view what) {
  return Reader(text, what).read();
}

std::string format_lifetimes_csv(const LifetimeTable& table, std::span<const Bytes> offsets) {
  if (!offsets.empty() && offsets.size() != table.lifetimes.size()) std::abort();
  std::string text = offsets.empty() ? "id,lower,upper,size\n" : "id,lower,upper,size,offset\n";
  for (std::size_t i = 0; i < table.lifetimes.size(); ++i) {
    const Lifetime& item = table.lifetimes[i];
    text += table.ids[i] + "," + std::to_string(item.lower) + "," + std::to_string(item.upper) +
            "," + std::to_string(item.size);
    if (!offsets.empty()) text += "," + std::to_string(offsets[i]);
    text += "\n";
  }
  return text;
}

}  // namespace regen
