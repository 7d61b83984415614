// Memory and layouts that may be damaged: whatever they say, one error or something inside bounds.
#include "regen/share/input/feed_segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "regen/base/random.h"
#include "regen/share/input/batch_layout.h"
#include "regen/share/input/feed_wire.h"

namespace regen::share {
namespace {

using Kind = BatchNode::Kind;
using ::testing::HasSubstr;

BatchNode tensor(ElementType type, std::vector<std::int64_t> shape) {
  return {.kind = Kind::kTensor, .type = type, .shape = std::move(shape)};
}

BatchNode example() {
  BatchNode pair{.kind = Kind::kTuple};
  pair.children = {tensor(ElementType::kFloat32, {2, 3}), tensor(ElementType::kInt64, {5})};
  BatchNode root{.kind = Kind::kDictionary};
  root.children = {{.kind = Kind::kText, .text = "pair"},
                   pair,
                   {.kind = Kind::kInteger, .integer = 7},
                   {.kind = Kind::kReal, .real = 0.5},
                   {.kind = Kind::kText, .text = "list"},
                   {.kind = Kind::kList, .children = {{.kind = Kind::kBool, .integer = 1}, {}}}};
  return root;
}

TEST(BatchLayout, SurvivesTheRoundTrip) {
  BatchNode root = example();
  EXPECT_EQ(place_tensors(root), 128u) << "24 and 40 bytes, each in multiples of 64";
  EXPECT_EQ(root.children[1].children[1].offset, 64u);
  const auto again = decode_layout(encode_layout(root), 128);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, root);
  EXPECT_THAT(decode_layout(encode_layout(root), 100).error().message,
              HasSubstr("does not fit into its data"));
  EXPECT_THAT(decode_layout(encode_layout(root) + "x", 128).error().message,
              HasSubstr("1 bytes too many"));
}

TEST(BatchLayout, EmptyTensorsFitAnywhere) {
  BatchNode root = tensor(ElementType::kFloat64, {0, std::int64_t{1} << 40});
  EXPECT_EQ(place_tensors(root), 0u);
  EXPECT_TRUE(decode_layout(encode_layout(root), 0).ok());
}

TEST(BatchLayout, NoProductOfSizesOverflows) {
  BatchNode root = tensor(ElementType::kFloat64, {1 << 30, 1 << 30, 1 << 30, 1 << 30});
  EXPECT_FALSE(decode_layout(encode_layout(root), 1 << 20).ok());
}

void check_inside(const BatchNode& node, std::uint64_t data_bytes) {
  if (node.kind == Kind::kTensor) {
    long double bytes = static_cast<long double>(bytes_of(node.type));
    for (const std::int64_t size : node.shape) bytes *= static_cast<long double>(size);
    const auto end = static_cast<long double>(node.offset) + bytes;
    EXPECT_TRUE(bytes == 0 || end <= static_cast<long double>(data_bytes));
  }
  for (const BatchNode& child : node.children) check_inside(child, data_bytes);
}

void damage(Random& random, char* bytes, std::size_t size) {
  const auto changes = random.between(1, 4);
  for (std::int64_t i = 0; i < changes; ++i) {
    const auto at =
        static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(size) - 1));
    switch (random.between(0, 2)) {
      case 0:
        bytes[at] = static_cast<char>(random.between(0, 255));
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.between(0, 7)));
        break;
      default:  // a whole number of an extreme size
        std::memset(bytes + at, random.between(0, 1) == 0 ? 0 : 0xff,
                    std::min<std::size_t>(8, size - at));
    }
  }
}

TEST(BatchLayout, DamagedTextsAreRefusedOrStayInside) {
  Random random(3);
  BatchNode root = example();
  const std::uint64_t bytes = place_tensors(root);
  const std::string good = encode_layout(root);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good.substr(0, static_cast<std::size_t>(random.between(1, std::ssize(good))));
    damage(random, bad.data(), bad.size());
    const auto node = decode_layout(bad, bytes);
    if (node.ok()) check_inside(*node, bytes);
    refused += node.ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 10000);
}

// A memory of the same form that any process can write to.
Descriptor copy_of(const std::string& bytes, bool sealed) {
  Descriptor file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  (void)!::write(file.number(), bytes.data(), bytes.size());
  if (sealed) ::fcntl(file.number(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK);
  return file;
}

std::string bytes_of_segment(const FeedSegment& segment) {
  std::string bytes(4096 + segment.slots() * segment.slot_bytes(), '\0');
  EXPECT_EQ(::pread(segment.descriptor(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  return bytes;
}

TEST(FeedSegment, WhatIsWrittenIsRead) {
  auto segment = FeedSegment::create(2, 5000);
  ASSERT_TRUE(segment.ok());
  EXPECT_EQ(segment->slot_bytes(), 8192u);
  const auto data = segment->fill(1, 42, "layout", 8);
  ASSERT_TRUE(data.ok());
  std::memcpy(*data, "12345678", 8);
  const auto view = FeedView::map(Descriptor(::dup(segment->descriptor())));
  ASSERT_TRUE(view.ok()) << view.error().message;
  const auto batch = view->batch(1, 42);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  EXPECT_EQ(batch->layout, "layout");
  EXPECT_EQ(std::string_view(batch->data, 8), "12345678");
  EXPECT_THAT(view->batch(1, 41).error().message, HasSubstr("has batch 42, expected 41"));
  EXPECT_THAT(view->batch(2, 42).error().message, HasSubstr("slot 2 of 2"));
  EXPECT_THAT(view->batch(0, 0).error().message, HasSubstr("damaged"));
}

TEST(FeedSegment, AReadersChangesAreItsOwnUntilItGivesTheBatchBack) {
  auto segment = FeedSegment::create(1, 10000);
  char* ours = *segment->fill(0, 1, "", 6000);
  std::memset(ours, 'a', 6000);
  const auto first = FeedView::map(Descriptor(::dup(segment->descriptor())));
  const auto second = FeedView::map(Descriptor(::dup(segment->descriptor())));
  const auto batch = *first->batch(0, 1);
  std::memset(batch.data, 'x', 6000);
  EXPECT_EQ(ours[0], 'a');
  EXPECT_EQ(second->batch(0, 1)->data[5999], 'a');
  first->restore(batch);
  std::memset(*segment->fill(0, 2, "", 6000), 'b', 6000);
  EXPECT_EQ(first->batch(0, 2)->data[0], 'b');
  EXPECT_EQ(first->batch(0, 2)->data[5999], 'b');
}

TEST(FeedSegment, NobodyElseCanWriteToItOrChangeItsSize) {
  auto segment = FeedSegment::create(1, 4096);
  const int file = segment->descriptor();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  EXPECT_LT(::pwrite(file, "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(file, 0), 0);
}

TEST(FeedSegment, ABatchThatIsTooLargeIsRefusedWithTheNumbers) {
  auto segment = FeedSegment::create(1, 4096);
  EXPECT_THAT(segment->fill(0, 1, "", 5000).error().message,
              HasSubstr("the batch takes 5,064 bytes, a slot has 4,096"));
  EXPECT_FALSE(segment->fill(0, 1, "", ~std::uint64_t{0}).ok());
  EXPECT_FALSE(FeedSegment::create(0, 4096).ok());
  EXPECT_FALSE(FeedSegment::create(1, 0).ok());
  EXPECT_FALSE(FeedSegment::create(5000, 4096).ok());
}

TEST(FeedSegment, MemoryThatMayShrinkIsRefused) {
  auto segment = FeedSegment::create(1, 4096);
  const std::string bytes = bytes_of_segment(*segment);
  EXPECT_TRUE(FeedView::map(copy_of(bytes, true)).ok());
  EXPECT_THAT(FeedView::map(copy_of(bytes, false)).error().message, HasSubstr("not sealed"));
  EXPECT_THAT(FeedView::map(copy_of(bytes.substr(0, 5000), true)).error().message,
              HasSubstr("has 5000 bytes, expected 8192"));
  EXPECT_THAT(FeedView::map(Descriptor()).error().message, HasSubstr("no memory"));
  std::string newer = bytes;
  newer[8] = 3;
  EXPECT_THAT(FeedView::map(copy_of(newer, true)).error().message,
              HasSubstr("version 3, expected 2"));
}

TEST(FeedSegment, DamagedMemoryIsRefusedOrStaysInside) {
  Random random(9);
  auto segment = FeedSegment::create(3, 4096);
  BatchNode root = example();
  const std::uint64_t data_bytes = place_tensors(root);
  ASSERT_TRUE(segment->fill(1, 5, encode_layout(root), data_bytes).ok());
  const std::string good = bytes_of_segment(*segment);
  int refused = 0;
  std::uint64_t sum = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string bad = good;
    if (random.between(0, 3) == 0) damage(random, bad.data(), 24);
    damage(random, bad.data() + 4096 + 4096, 64 + 100);
    const auto view = FeedView::map(copy_of(bad, true));
    const auto batch = view.ok() ? view->batch(1, 5) : Result<FeedView::Batch>(view.error());
    const auto layout = batch.ok() ? decode_layout(batch->layout, batch->data_bytes)
                                   : Result<BatchNode>(batch.error());
    refused += layout.ok() ? 0 : 1;
    if (!layout.ok()) {
      EXPECT_EQ(layout.error().message.find('\n'), std::string::npos);
      continue;
    }
    check_inside(*layout, batch->data_bytes);
    for (std::uint64_t at = 0; at < batch->data_bytes; ++at)
      sum += static_cast<unsigned char>(batch->data[at]);
    view->restore(*batch);
  }
  EXPECT_GT(refused, 5000);
  EXPECT_LT(refused, 10000);
  EXPECT_LT(sum, ~std::uint64_t{0});
}

TEST(FeedFrame, SurvivesTheRoundTripAndRefusesTheRest) {
  const FeedFrame hello{.kind = FrameKind::kHello,
                        .policy = SlowPolicy::kSkip,
                        .join = Join::kEpoch,
                        .resumes = true,
                        .slot = 3,
                        .serial = 9,
                        .position = {1, 2},
                        .lost = 4,
                        .text = "{}"};
  const std::string good = encode(hello);
  EXPECT_EQ(*decode(good, true), hello);
  EXPECT_THAT(decode(good, false).error().message, HasSubstr("unknown kind 1, expected 65 to 69"));
  EXPECT_THAT(decode(good.substr(0, 20), true).error().message, HasSubstr("packet has 20 bytes"));
  std::string version = good;
  version[4] = 9;
  EXPECT_THAT(decode(version, true).error().message, HasSubstr("version 9, expected 2"));
  Random random(4);
  for (int i = 0; i < 10000; ++i) {
    std::string bad = good;
    damage(random, bad.data(), bad.size());
    const auto frame = decode(bad, true);
    if (frame.ok()) {
      EXPECT_EQ(encode(*frame), bad);
    }
  }
}

}  // namespace
}  // namespace regen::share
