#include "regen/share/input/batch_layout.h"

#include <array>
#include <cstring>

#include "regen/base/text.h"

namespace regen::share {
namespace {

using Kind = BatchNode::Kind;

constexpr std::array<std::uint64_t, kElementTypes> kElementBytes{1, 1, 2, 4,  8, 2,
                                                                 4, 8, 8, 16, 1, 2};

// Of one machine: numbers are in its own byte order.
template <typename T>
void append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

bool has_children(Kind kind) {
  return kind == Kind::kList || kind == Kind::kTuple || kind == Kind::kDictionary;
}

void append_node(std::string& out, const BatchNode& node) {
  append(out, node.kind);
  if (node.kind == Kind::kBool || node.kind == Kind::kInteger) append(out, node.integer);
  if (node.kind == Kind::kReal) append(out, node.real);
  if (node.kind == Kind::kText) {
    append(out, std::uint64_t{node.text.size()});
    out += node.text;
  }
  if (node.kind == Kind::kTensor) {
    append(out, node.type);
    append(out, std::uint64_t{node.shape.size()});
    for (const std::int64_t size : node.shape) append(out, size);
    append(out, node.offset);
  }
  if (!has_children(node.kind)) return;
  append(out, std::uint64_t{node.children.size()});
  for (const BatchNode& child : node.children) append_node(out, child);
}

class Reader {
 public:
  Reader(std::string_view text, std::uint64_t data_bytes) : text_(text), data_bytes_(data_bytes) {}

  Result<BatchNode> root() {
    REGEN_ASSIGN(BatchNode node, read(0));
    if (at_ != text_.size())
      return bad("has " + std::to_string(text_.size() - at_) + " bytes too many");
    return node;
  }

 private:
  Error bad(const std::string& what) const {
    return bad_input("damaged batch: its layout " + what + " (byte " + std::to_string(at_) + ")");
  }

  template <typename T>
  Status take(T& value) {
    if (text_.size() - at_ < sizeof(T)) return bad("ends too soon");
    std::memcpy(&value, text_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return {};
  }

  // A length that the rest of the text can hold, at `each` bytes or more for an entry.
  Result<std::size_t> count(std::size_t each) {
    std::uint64_t number = 0;
    REGEN_TRY(take(number));
    if (number > (text_.size() - at_) / each) {
      return bad("says that " + std::to_string(number) +
                 " entries follow, more than there is room for");
    }
    return static_cast<std::size_t>(number);
  }

  Status read_tensor(BatchNode& node) {
    std::uint8_t type = 0;
    REGEN_TRY(take(type));
    if (type >= kElementTypes) return bad("has the unknown element type " + std::to_string(type));
    node.type = static_cast<ElementType>(type);
    REGEN_ASSIGN(const std::size_t dimensions, count(sizeof(std::int64_t)));
    if (dimensions > kMaxDimensions) {
      return bad("has a tensor of " + std::to_string(dimensions) +
                 " dimensions, expected at most " + std::to_string(kMaxDimensions));
    }
    node.shape.resize(dimensions);
    for (std::int64_t& size : node.shape) REGEN_TRY(take(size));
    REGEN_TRY(take(node.offset));
    return check_bounds(node);
  }

  // Without trusting any product: sizes are divided out of what is left.
  Status check_bounds(const BatchNode& node) const {
    bool empty = false;
    for (const std::int64_t size : node.shape) {
      if (size < 0 || size > (std::int64_t{1} << 56)) {
        return bad("has a dimension of " + std::to_string(size));
      }
      empty |= size == 0;
    }
    if (node.offset > data_bytes_ || node.offset % kTensorAlignment != 0) {
      return bad("has a tensor at byte " + std::to_string(node.offset) + " of " +
                 std::to_string(data_bytes_));
    }
    std::uint64_t room = (data_bytes_ - node.offset) / bytes_of(node.type);
    for (const std::int64_t size : node.shape) {
      if (empty) break;
      room /= static_cast<std::uint64_t>(size);
    }
    if (room == 0 && !empty) return bad("has a tensor that does not fit into its data");
    return {};
  }

  Status read_value(BatchNode& node) {
    if (node.kind == Kind::kBool || node.kind == Kind::kInteger) REGEN_TRY(take(node.integer));
    if (node.kind == Kind::kBool && (node.integer & ~std::int64_t{1}) != 0) {
      return bad("has the truth value " + std::to_string(node.integer));
    }
    if (node.kind == Kind::kReal) REGEN_TRY(take(node.real));
    if (node.kind == Kind::kText) {
      REGEN_ASSIGN(const std::size_t size, count(1));
      node.text = text_.substr(at_, size);
      if (!is_utf8(node.text)) return bad("has a text that is not UTF-8");
      at_ += size;
    }
    if (node.kind == Kind::kTensor) REGEN_TRY(read_tensor(node));
    return {};
  }

  Result<BatchNode> read(std::size_t depth) {
    if (depth > kMaxLayoutDepth)
      return bad("is nested deeper than " + std::to_string(kMaxLayoutDepth));
    if (++nodes_ > kMaxLayoutNodes)
      return bad("has more than " + std::to_string(kMaxLayoutNodes) + " values");
    std::uint8_t kind = 0;
    REGEN_TRY(take(kind));
    if (kind > static_cast<std::uint8_t>(Kind::kDictionary)) {
      return bad("has the unknown kind " + std::to_string(kind));
    }
    BatchNode node{.kind = static_cast<Kind>(kind)};
    REGEN_TRY(read_value(node));
    if (has_children(node.kind)) REGEN_TRY(read_children(node, depth));
    return node;
  }

  Status read_children(BatchNode& node, std::size_t depth) {
    REGEN_ASSIGN(const std::size_t size, count(1));
    if (node.kind == Kind::kDictionary && size % 2 != 0) return bad("has a key without a value");
    for (std::size_t i = 0; i < size; ++i) {
      REGEN_ASSIGN(BatchNode child, read(depth + 1));
      const bool key = node.kind == Kind::kDictionary && i % 2 == 0;
      if (key && child.kind != Kind::kText && child.kind != Kind::kInteger) {
        return bad("has a key that is neither text nor a whole number");
      }
      node.children.push_back(std::move(child));
    }
    return {};
  }

  std::string_view text_;
  std::uint64_t data_bytes_;
  std::size_t at_ = 0;
  std::size_t nodes_ = 0;
};

void place(BatchNode& node, std::uint64_t& end) {
  if (node.kind == Kind::kTensor) {
    node.offset = end;
    const std::uint64_t bytes = tensor_bytes(node);
    end += (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  }
  for (BatchNode& child : node.children) place(child, end);
}

}  // namespace

std::uint64_t bytes_of(ElementType type) {
  return kElementBytes[static_cast<std::size_t>(type)];
}

std::uint64_t tensor_bytes(const BatchNode& tensor) {
  std::uint64_t bytes = bytes_of(tensor.type);
  for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

std::uint64_t place_tensors(BatchNode& root) {
  std::uint64_t end = 0;
  place(root, end);
  return end;
}

std::string encode_layout(const BatchNode& root) {
  std::string text;
  append_node(text, root);
  return text;
}

Result<BatchNode> decode_layout(std::string_view text, std::uint64_t data_bytes) {
  return Reader(text, data_bytes).root();
}

}  // namespace regen::share
