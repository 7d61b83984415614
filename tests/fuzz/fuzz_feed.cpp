// Shared input: packets and the layouts of batches. Whatever is read can be written and read again,
// and no tensor lies outside of its data.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/share/input/batch_layout.h"
#include "regen/share/input/feed_wire.h"

namespace {

constexpr std::uint64_t kDataBytes = 1 << 20;

void check_inside(const regen::share::BatchNode& node) {
  if (node.kind == regen::share::BatchNode::Kind::kTensor) {
    std::uint64_t room = kDataBytes - node.offset;
    bool empty = false;
    for (const std::int64_t size : node.shape) empty |= size == 0;
    if (!empty && regen::share::tensor_bytes(node) > room) std::abort();
  }
  for (const auto& child : node.children) check_inside(child);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool from_consumer : {false, true}) {
    const auto frame = regen::share::decode(text, from_consumer);
    if (frame.ok() && encode(*frame) != text) std::abort();
  }
  const auto layout = regen::share::decode_layout(text, kDataBytes);
  if (!layout.ok()) return 0;
  check_inside(*layout);
  const auto again = regen::share::decode_layout(encode_layout(*layout), kDataBytes);
  if (!again.ok()) std::abort();
  return 0;
}
