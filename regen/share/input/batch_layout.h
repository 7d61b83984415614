// What a batch looks like: a tree of lists, tuples and dictionaries whose leaves are tensors, which
// lie in the slot's data, and small values, which are in the tree itself. Its text travels in the
// slot in front of the data, so that batches may vary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"

namespace regen::share {

// The numbers are part of the format.
enum class ElementType : std::uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kComplex64 = 8,
  kComplex128 = 9,
  kBool = 10,
  kBfloat16 = 11,
};
inline constexpr std::size_t kElementTypes = 12;
std::uint64_t bytes_of(ElementType type);

struct BatchNode {
  enum class Kind : std::uint8_t {
    kNone = 0,
    kBool = 1,  // integer is 0 or 1
    kInteger = 2,
    kReal = 3,
    kText = 4,
    kTensor = 5,
    kList = 6,
    kTuple = 7,
    kDictionary = 8,  // children are key, value, key, value, ...
  };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;
  double real = 0;
  std::string text = {};
  ElementType type = ElementType::kUint8;
  std::vector<std::int64_t> shape = {};
  std::uint64_t offset = 0;  // of the tensor, from the start of the data; its elements are dense
  std::vector<BatchNode> children = {};

  bool operator==(const BatchNode&) const = default;
};

inline constexpr std::size_t kMaxLayoutDepth = 32;
inline constexpr std::size_t kMaxLayoutNodes = 1 << 16;
inline constexpr std::size_t kMaxLayoutBytes = 1 << 24;
inline constexpr std::size_t kMaxDimensions = 64;
inline constexpr std::uint64_t kTensorAlignment = 64;

// Gives every tensor of the tree its place; returns the bytes of the data.
std::uint64_t place_tensors(BatchNode& root);

std::string encode_layout(const BatchNode& root);

// Refuses a text that is no layout, and one with a tensor outside of `data_bytes`.
Result<BatchNode> decode_layout(std::string_view text, std::uint64_t data_bytes);

// The bytes of a tensor; nothing sensible for shapes that decode_layout() refuses.
std::uint64_t tensor_bytes(const BatchNode& tensor);

}  // namespace regen::share
