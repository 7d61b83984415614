// What goes to standard output: text, tables and JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regen/base/json.h"
#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen::cli {

Status print(std::string_view text);
Status print_json(const Json& value);
// One line on standard error beside an answer that is not the whole one.
void warn(const std::string& message);

// Whole numbers that a double holds exactly become JSON integers, so that a cost of
// 58896187392 flop is not written as 5.8896187392e10. Infinite and undefined become null.
Json json_number(double value);
// The value, or null where there is none.
Json json_or_null(bool known, Json value);

// Whether standard output is a terminal that wants colours (NO_COLOR is respected).
bool colours_wanted();
std::string bold(const std::string& text);

// "48.5 MiB (50,855,936 bytes)".
std::string full_bytes(Bytes bytes);
// "71,005,863,936 flop" or "12.3 ms".
std::string full_cost(double cost, CostUnit unit);
// "+20.6 %".
std::string percent(double fraction);
// Fixed decimals.
std::string decimals(double value, int digits);

// Rows under a head, columns as wide as their widest cell; numbers go to the right.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string head;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One cell for each column.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "label     value" lines with the values in one column.
std::string facts(const std::vector<std::pair<std::string, std::string>>& lines);

}  // namespace regen::cli
