// A state file after its writer was killed at every system call, and after any kind of damage:
// always the newest image that was committed, or one clear line.
#include "regen/share/protocol/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "regen/base/file.h"
#include "regen/base/random.h"
#include "tests/share/support/processes.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;
using Image = std::vector<std::byte>;

std::size_t below(Random& random, std::size_t end) {
  return static_cast<std::size_t>(random.next() % end);
}

// Steps from 5 on are larger, so that the file is made anew.
Image image_of(std::uint64_t step) {
  Image image(step < 5 ? 20'000 : 50'001);
  std::uint64_t value = step;
  for (std::byte& byte : image) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(value >> 56);
  }
  return image;
}

// In three parts of odd sizes.
Status commit(StateFile& file, std::uint64_t step) {
  const Image image = image_of(step);
  const std::span<const std::byte> all(image);
  const std::vector<std::span<const std::byte>> parts{all.first(7), all.subspan(7, 10'000),
                                                      all.subspan(10'007)};
  return file.commit(step, parts);
}

StateFile::Options small_chunks(StateFile::Access access = StateFile::Access::kWrite) {
  return {.access = access, .durable = false, .chunk = 4099};
}

// The step of the newest image, whose contents must be those of the step; 0 if there is none.
std::uint64_t newest_step(const std::string& path) {
  auto file = StateFile::open(path, small_chunks());
  EXPECT_TRUE(file.ok()) << file.error().message;
  if (!file.ok() || !file->newest()) return 0;
  Image image(static_cast<std::size_t>(file->newest()->bytes));
  EXPECT_TRUE(file->read(0, image).ok());
  EXPECT_EQ(image, image_of(file->newest()->step)) << file->newest()->step;
  return file->newest()->step;
}

void write_steps(const std::string& path, std::uint64_t first, std::uint64_t last) {
  auto file = StateFile::open(path, small_chunks());
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (auto step = first; step <= last; ++step) ASSERT_TRUE(commit(*file, step).ok());
}

TEST(StateFile, HasTheNewestImageAlsoAfterItWasClosed) {
  const TemporaryFolder folder;
  const std::string path = folder.path("state");
  EXPECT_EQ(newest_step(path), 0u);
  EXPECT_FALSE(std::filesystem::exists(path));
  for (std::uint64_t step = 1; step <= 8; ++step) {
    write_steps(path, step, step);
    EXPECT_EQ(newest_step(path), step);
  }
  auto file = StateFile::open(path);
  EXPECT_EQ(file->newest()->sequence, 8u);
  Image part(100);
  ASSERT_TRUE(file->read(12'345, part).ok());
  EXPECT_EQ(std::memcmp(part.data(), image_of(8).data() + 12'345, part.size()), 0);
  EXPECT_THAT(file->read(file->newest()->bytes - 99, part).error().message,
              HasSubstr("of an image of"));
  ASSERT_TRUE(file->commit(9, {}).ok());  // an image of no bytes
  EXPECT_EQ(file->newest()->bytes, 0);
}

TEST(StateFile, HasOneWriterAndAnyNumberOfReaders) {
  const TemporaryFolder folder;
  const std::string path = folder.path("state");
  auto writer = StateFile::open(path, small_chunks());
  ASSERT_TRUE(commit(*writer, 1).ok());
  EXPECT_THAT(StateFile::open(path).error().message, HasSubstr("another process writes it"));
  Process other([&] { return StateFile::open(path).ok() ? 1 : 0; });
  EXPECT_EQ(other.wait(), 0);
  auto reader = StateFile::open(path, small_chunks(StateFile::Access::kRead));
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_THAT(commit(*reader, 2).error().message, HasSubstr("opened for reading"));
  ASSERT_TRUE(commit(*writer, 2).ok());
  Image image(static_cast<std::size_t>(reader->newest()->bytes));
  ASSERT_TRUE(reader->read(0, image).ok());  // of the slot that was not touched
  EXPECT_EQ(image, image_of(1));
  ASSERT_TRUE(commit(*writer, 3).ok());
  EXPECT_EQ(reader->read(0, image).error().code, ErrorCode::kLimit);
  writer = StateFile::open(folder.path("other"));
  EXPECT_EQ(newest_step(path), 3u);  // let go of
}

// Workers of a data loader may outlive a killed trainer by seconds.
TEST(StateFile, IsFreeWhenItsWriterWasKilledThoughItsChildrenLive) {
  const TemporaryFolder folder;
  const std::string path = folder.path("state");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Process writer([&] {
    auto file = StateFile::open(path, small_chunks());
    if (!file.ok() || !commit(*file, 1).ok()) return 1;
    const pid_t child = fork();
    if (child == 0) pause();
    if (write(ends[1], &child, sizeof child) != sizeof child) return 1;
    pause();
    return 0;
  });
  pid_t child = 0;
  ASSERT_EQ(read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  EXPECT_FALSE(StateFile::open(path).ok());
  writer.signal(SIGKILL);
  writer.wait();
  EXPECT_EQ(newest_step(path), 1u);
  kill(child, SIGKILL);
  close(ends[0]);
  close(ends[1]);
}

// The file changes by system calls only, so these are all moments at which a kill can differ.
TEST(StateFile, SurvivesAKillAtEverySystemCall) {
  auto* done = static_cast<std::atomic<int>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::size_t kills = 0;
  std::vector<int> seen(4, 0);  // how often each number of finished commits was found
  for (int stops = 0;; ++stops) {
    const TemporaryFolder folder;
    const std::string path = folder.path("state");
    write_steps(path, 1, 3);
    *done = 0;
    const pid_t child = fork();
    if (child == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
      raise(SIGSTOP);
      auto file = StateFile::open(path, {.chunk = 4099});
      for (std::uint64_t step = 4; step <= 6; ++step) {
        if (!file.ok() || !commit(*file, step).ok()) _exit(1);
        ++*done;
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
      GTEST_SKIP() << "processes may not be traced here";
    ASSERT_TRUE(WIFSTOPPED(status));
    for (int i = 0; i < stops && WIFSTOPPED(status); ++i) {
      ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
      waitpid(child, &status, 0);
    }
    const bool ended = WIFEXITED(status);
    if (!ended) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      ++kills;
    } else {
      ASSERT_EQ(WEXITSTATUS(status), 0);
    }
    const auto found = static_cast<int>(newest_step(path)) - 3;
    EXPECT_GE(found, *done) << "after " << stops << " stops";
    EXPECT_LE(found, *done + 1) << "after " << stops << " stops";
    ++seen[static_cast<std::size_t>(found)];
    write_steps(path, 7, 7);  // and it can be written again
    EXPECT_EQ(newest_step(path), 7u);
    if (ended) break;
  }
  munmap(done, 4096);
  EXPECT_GT(kills, 80u);
  for (int count : seen) EXPECT_GT(count, 0);
}

TEST(StateFile, DamageIsFoundWhereverItIs) {
  const TemporaryFolder folder;
  const std::string path = folder.path("state");
  write_steps(path, 1, 2);
  const std::string whole = *read_file(path);
  Random random(11);
  std::size_t refused = 0;
  std::size_t older = 0;
  const auto look = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    auto file = StateFile::open(path, small_chunks());
    if (!file.ok()) {
      EXPECT_THAT(file.error().message, HasSubstr("state file"));
      EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
      ++refused;
      return;
    }
    file = Error();  // lets go of it
    older += newest_step(path) == 1;
  };
  for (int i = 0; i < 600; ++i) {
    std::string content = whole;
    // A third of them where the headers are.
    const auto place =
        i % 3 ? below(random, content.size()) : below(random, 64) + 4096 * below(random, 3);
    content[place] = static_cast<char>(content[place] ^ (1 << below(random, 8)));
    look(content);
  }
  EXPECT_GT(older, 100u);
  EXPECT_GT(refused, 20u);
  for (std::size_t size = 0; size < whole.size(); size += 977) look(whole.substr(0, size));
  look("");
  look("#!/bin/sh\n" + std::string(9000, 'x'));
}

TEST(StateFile, WhatCannotBeUsedIsSaidInOneLine) {
  const TemporaryFolder folder;
  const std::string path = folder.path("state");
  const auto says = [](const Result<StateFile>& file, const std::string& text) {
    ASSERT_FALSE(file.ok());
    EXPECT_THAT(file.error().message, HasSubstr(text));
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
  };
  says(StateFile::open(folder.path("no/such/folder")), "cannot be opened");
  says(StateFile::open(path, small_chunks(StateFile::Access::kRead)), "cannot be opened");
  std::filesystem::create_directory(folder.path("folder"));
  says(StateFile::open(folder.path("folder")), "cannot be opened");
  ASSERT_TRUE(write_file(path, std::string(5000, 'x')).ok());
  says(StateFile::open(path), "it is something else");
  EXPECT_EQ(*read_file(path), std::string(5000, 'x'));  // and left as it is
  std::filesystem::remove(path);
  write_steps(path, 1, 1);
  std::string content = *read_file(path);
  content[8] = 9;
  ASSERT_TRUE(write_file(path, content).ok());
  says(StateFile::open(path), "version 9, expected 1");
}

TEST(StateFile, AFullDiskLeavesTheNewestImage) {
  const std::string path = "/dev/full";
  auto file = StateFile::open(path, small_chunks(StateFile::Access::kRead));
  EXPECT_FALSE(file.ok());
  const TemporaryFolder folder;
  write_steps(folder.path("state"), 1, 2);
  Process limited([&] {
    auto own = StateFile::open(folder.path("state"), small_chunks());
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{30'000, 30'000};  // as if the disk ended inside a slot
    setrlimit(RLIMIT_FSIZE, &limit);
    const Status small = commit(*own, 3);
    const Status large = commit(*own, 5);
    if (small.ok() && large.ok()) return 1;
    return own->newest()->step >= 2 ? 0 : 2;
  });
  EXPECT_EQ(limited.wait(), 0);
  EXPECT_GE(newest_step(folder.path("state")), 2u);
  EXPECT_FALSE(std::filesystem::exists(folder.path("state.new")));
}

TEST(Checksum, DependsOnEveryBitButNotOnThePieces) {
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    Image bytes(below(random, 200));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(below(random, 256));
    Checksum whole;
    whole.add(bytes);
    Checksum pieces;
    for (std::span<const std::byte> rest(bytes); !rest.empty();) {
      const auto size = std::min<std::size_t>(rest.size(), 1 + below(random, 70));
      pieces.add(rest.first(size));
      rest = rest.subspan(size);
    }
    EXPECT_EQ(whole.value(), pieces.value());
    if (bytes.empty()) continue;
    bytes[below(random, bytes.size())] ^= static_cast<std::byte>(1 << below(random, 8));
    Checksum other;
    other.add(bytes);
    EXPECT_NE(whole.value(), other.value());
    bytes.push_back(std::byte{0});
    Checksum longer;
    longer.add(bytes);
    EXPECT_NE(other.value(), longer.value());
  }
}

}  // namespace
}  // namespace regen::share
