#include "regen/report/export/pickle.h"

#include <array>
#include <bit>
#include <cstdint>

namespace regen::report {
namespace {

// Items of a list or dict that are added at once: readers may put them on a stack of limited size.
constexpr std::size_t kBatch = 1000;

class PickleWriter {
 public:
  std::string write(const Json& value) && {
    text_ += "\x80\x02";
    add(value);
    text_ += '.';
    return std::move(text_);
  }

 private:
  void add(const Json& value) {
    switch (value.type()) {
      case Json::value_t::boolean:
        text_ += value.get<bool>() ? '\x88' : '\x89';
        return;
      case Json::value_t::number_integer:
      case Json::value_t::number_unsigned:
        return add_integer(value.get<std::int64_t>());
      case Json::value_t::number_float:
        return add_float(value.get<double>());
      case Json::value_t::string:
        return add_text(value.get_ref<const std::string&>());
      case Json::value_t::array:
        return add_list(value);
      case Json::value_t::object:
        return add_dict(value);
      default:
        text_ += 'N';
    }
  }

  // The shortest of the forms: eight bytes are the longest, with their sign.
  void add_integer(std::int64_t value) {
    if (value == static_cast<std::int32_t>(value)) {
      text_ += 'J';
      return add_bytes(static_cast<std::uint64_t>(value), 4);
    }
    text_ += "\x8a\x08";
    add_bytes(static_cast<std::uint64_t>(value), 8);
  }

  void add_float(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    text_ += 'G';
    for (int byte = 7; byte >= 0; --byte) text_ += static_cast<char>((bits >> (8 * byte)) & 0xff);
  }

  void add_text(const std::string& text) {
    text_ += 'X';
    add_bytes(text.size(), 4);
    text_ += text;
  }

  void add_bytes(std::uint64_t value, int count) {
    for (int byte = 0; byte < count; ++byte) {
      text_ += static_cast<char>((value >> (8 * byte)) & 0xff);
    }
  }

  void add_list(const Json& list) {
    text_ += ']';
    in_batches(list, 'e', [this](const auto& item) { add(item.value()); });
  }

  void add_dict(const Json& dict) {
    text_ += '}';
    in_batches(dict, 'u', [this](const auto& item) {
      add_text(item.key());
      add(item.value());
    });
  }

  template <typename AddItem>
  void in_batches(const Json& items, char close, AddItem add_item) {
    std::size_t open = 0;
    for (const auto& item : items.items()) {
      if (open == 0) text_ += '(';
      add_item(item);
      if (++open < kBatch) continue;
      text_ += close;
      open = 0;
    }
    if (open > 0) text_ += close;
  }

  std::string text_;
};

}  // namespace

std::string pickle(const Json& value) {
  return PickleWriter().write(value);
}

}  // namespace regen::report
