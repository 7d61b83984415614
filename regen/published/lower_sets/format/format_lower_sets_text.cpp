#include <algorithm>
#include <array>
#include <utility>

#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/published/lower_sets/format/format_lower_sets.h"

namespace regen::published {
namespace {

constexpr std::array<std::string_view, 4> kRoleNames{"_", "gradient", "input", "output"};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

std::string_view without_blanks_around(std::string_view line) {
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
  return line;
}

class TextReader {
 public:
  TextReader(std::string_view text, const std::string& source) : rest_(text), source_(source) {}

  Result<LowerSetFile> read();

 private:
  Result<std::string_view> next_line(const char* expected);
  // The words of the next line; `N` words are expected.
  template <std::size_t N>
  Result<std::array<std::string_view, N>> next_words(const char* expected);
  Result<std::size_t> number(std::string_view word, std::size_t limit, const char* expected) const;
  Status read_variable(std::size_t id);
  Status read_block(std::size_t index, std::size_t num_blocks);
  Status read_inputs(LowerSetBlock& block, std::size_t count);
  Status read_description(LowerSetBlock& block);
  Error error(std::string_view problem) const {
    return bad_input(source_ + ": line " + std::to_string(line_) + ": " + std::string(problem));
  }

  std::string_view rest_;
  const std::string& source_;
  std::size_t line_ = 0;
  Bytes total_bytes_ = 0;
  LowerSetFile file_;
};

Result<std::string_view> TextReader::next_line(const char* expected) {
  ++line_;
  if (rest_.empty()) return error(std::string("the text ends, expected ") + expected);
  const std::size_t end = std::min(rest_.find('\n'), rest_.size());
  const std::string_view line = without_blanks_around(rest_.substr(0, end));
  rest_.remove_prefix(std::min(end + 1, rest_.size()));
  return line;
}

template <std::size_t N>
Result<std::array<std::string_view, N>> TextReader::next_words(const char* expected) {
  REGEN_ASSIGN(const std::string_view line, next_line(expected));
  std::array<std::string_view, N> words;
  std::string_view rest = line;
  for (std::string_view& word : words) {
    word = rest.substr(0, static_cast<std::size_t>(
                              std::find_if(rest.begin(), rest.end(), is_blank) - rest.begin()));
    rest = without_blanks_around(rest.substr(word.size()));
  }
  if (words[N - 1].empty() || !rest.empty()) {
    return error(in_quotes(line) + " found, expected " + expected);
  }
  return words;
}

Result<std::size_t> TextReader::number(std::string_view word, std::size_t limit,
                                       const char* expected) const {
  const auto value = parse_int(word);
  if (!value.ok() || *value < 0 || static_cast<std::size_t>(*value) > limit) {
    return error(in_quotes(word) + " found, expected " + expected + ", 0 to " +
                 std::to_string(limit));
  }
  return static_cast<std::size_t>(*value);
}

Status TextReader::read_variable(std::size_t id) {
  constexpr const char* kExpected = "a variable as 'id bytes name'";
  REGEN_ASSIGN(const auto words, next_words<3>(kExpected));
  if (words[0] != std::to_string(id)) {
    return error("variable id " + in_quotes(words[0]) + " found, expected " + std::to_string(id) +
                 ": ids count up from 0");
  }
  REGEN_ASSIGN(const std::size_t bytes, number(words[1], kMaxBytes, "a number of bytes"));
  total_bytes_ += static_cast<Bytes>(bytes);
  if (total_bytes_ > kMaxBytes) return error("the variables add up to more than 8 PiB");
  file_.variables.push_back({static_cast<Bytes>(bytes), std::string(words[2])});
  return {};
}

Status TextReader::read_inputs(LowerSetBlock& block, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    REGEN_ASSIGN(const auto words, next_words<2>("an input as 'id kind'"));
    REGEN_ASSIGN(const std::size_t id,
                 number(words[0], file_.variables.size() - 1, "the id of a variable"));
    const auto role = std::find(kRoleNames.begin(), kRoleNames.end(), words[1]);
    const bool fits = role != kRoleNames.end() && (role == kRoleNames.begin()) != block.backward;
    if (!fits) {
      return error("kind " + in_quotes(words[1]) + " found, expected " +
                   (block.backward ? "gradient, input or output in a backward block"
                                   : "_ in a forward block"));
    }
    block.inputs.push_back(
        {static_cast<std::uint32_t>(id), static_cast<LowerSetRole>(role - kRoleNames.begin())});
  }
  return {};
}

Status TextReader::read_description(LowerSetBlock& block) {
  REGEN_ASSIGN(const std::string_view type, next_line("a function type"));
  if (type.empty()) return error("an empty line found, expected a function type");
  block.type = type;
  REGEN_ASSIGN(const std::string_view attributes, next_line("the attributes as a JSON object"));
  const auto object = parse_json(attributes, "the attributes");
  if (!object.ok()) return error(object.error().message);
  if (!object->is_object()) return error(excerpt(*object) + " found, expected a JSON object");
  block.attributes = attributes;
  return {};
}

Status TextReader::read_block(std::size_t index, std::size_t num_blocks) {
  LowerSetBlock block{.backward = index >= num_blocks / 2};
  const char* expected = block.backward ? "backward" : "forward";
  REGEN_ASSIGN(const std::string_view direction, next_line(expected));
  if (direction != expected) {
    return error(in_quotes(direction) + " found, expected " + expected + " for block " +
                 std::to_string(index) + " of " + std::to_string(num_blocks) +
                 ": the first half is forward, the second backward");
  }
  REGEN_ASSIGN(const auto counts, next_words<2>("the numbers of inputs and outputs"));
  // Every id takes a line of two characters or more, so no larger count can be true.
  REGEN_ASSIGN(const std::size_t num_inputs, number(counts[0], rest_.size() / 2, "inputs"));
  REGEN_ASSIGN(const std::size_t num_outputs, number(counts[1], rest_.size() / 2, "outputs"));
  if (!block.backward && num_outputs != 1) {
    return error(std::to_string(num_outputs) + " outputs found, expected 1 in a forward block");
  }
  if (num_inputs + num_outputs > 0 && file_.variables.empty()) {
    return error("a block with inputs or outputs found in a file without variables");
  }
  REGEN_TRY(read_inputs(block, num_inputs));
  for (std::size_t i = 0; i < num_outputs; ++i) {
    REGEN_ASSIGN(const auto word, next_words<1>("the id of an output"));
    REGEN_ASSIGN(const std::size_t id,
                 number(word[0], file_.variables.size() - 1, "the id of a variable"));
    block.outputs.push_back(static_cast<std::uint32_t>(id));
  }
  REGEN_TRY(read_description(block));
  file_.blocks.push_back(std::move(block));
  return {};
}

Result<LowerSetFile> TextReader::read() {
  if (!is_utf8(rest_)) return bad_input(source_ + ": not UTF-8 text");
  REGEN_ASSIGN(const auto counts, next_words<2>("the numbers of variables and blocks"));
  // Before anything is allocated: a variable takes five characters, a block more.
  REGEN_ASSIGN(const std::size_t num_variables, number(counts[0], rest_.size() / 5, "variables"));
  REGEN_ASSIGN(const std::size_t num_blocks, number(counts[1], rest_.size() / 5, "blocks"));
  if (num_blocks % 2 != 0) {
    return error(std::to_string(num_blocks) +
                 " blocks found, expected an even number: a backward block for each forward one");
  }
  for (std::size_t i = 0; i < num_variables; ++i) REGEN_TRY(read_variable(i));
  for (std::size_t i = 0; i < num_blocks; ++i) REGEN_TRY(read_block(i, num_blocks));
  while (!rest_.empty()) {
    REGEN_ASSIGN(const std::string_view line, next_line(""));
    if (!line.empty())
      return error(in_quotes(line) + " found, expected the end after the last block");
  }
  return std::move(file_);
}

void append_block(std::string& text, const LowerSetBlock& block) {
  text += block.backward ? "backward\n" : "forward\n";
  text += std::to_string(block.inputs.size()) + " " + std::to_string(block.outputs.size()) + "\n";
  for (const LowerSetRead& read : block.inputs) {
    text += std::to_string(read.variable) + " ";
    text += kRoleNames[static_cast<std::size_t>(read.role)];
    text += "\n";
  }
  for (std::uint32_t id : block.outputs) text += std::to_string(id) + "\n";
  text += block.type + "\n" + block.attributes + "\n";
}

}  // namespace

Result<LowerSetFile> read_lower_set_file(std::string_view text, const std::string& source) {
  return TextReader(text, source).read();
}

std::string write_lower_set_file(const LowerSetFile& file) {
  std::string text =
      std::to_string(file.variables.size()) + " " + std::to_string(file.blocks.size()) + "\n";
  for (std::size_t i = 0; i < file.variables.size(); ++i) {
    const LowerSetVariable& variable = file.variables[i];
    text += std::to_string(i) + " " + std::to_string(variable.bytes) + " " + variable.name + "\n";
  }
  for (const LowerSetBlock& block : file.blocks) append_block(text, block);
  return text;
}

double lower_set_cost(std::string_view type) {
  return type.starts_with("Conv") ? 10 : 1;
}

LowerSetStatistics lower_set_statistics(const LowerSetFile& file) {
  LowerSetStatistics sums{.variables = file.variables.size()};
  std::vector<bool> made(file.variables.size(), false);
  for (const LowerSetBlock& block : file.blocks) {
    if (block.backward) continue;
    sums.forward_cost += lower_set_cost(block.type);
    for (std::uint32_t id : block.outputs) made[id] = true;
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  for (const LowerSetBlock& block : file.blocks) {
    if (block.backward) continue;
    for (const LowerSetRead& read : block.inputs) {
      if (made[read.variable]) edges.emplace_back(read.variable, block.outputs[0]);
    }
  }
  std::sort(edges.begin(), edges.end());
  sums.edges = static_cast<std::size_t>(std::unique(edges.begin(), edges.end()) - edges.begin());
  for (std::size_t i = 0; i < file.variables.size(); ++i) {
    const LowerSetVariable& variable = file.variables[i];
    if (made[i]) {
      ++sums.intermediates;
      sums.activation_bytes += variable.bytes;
    } else if (variable.name.starts_with("/")) {
      sums.parameter_bytes += variable.bytes;
    }
  }
  return sums;
}

}  // namespace regen::published
