// Every system call on the files of share fails in turn: state files, the job table, files of device use,
// locks, listen sockets, policies. What was there before is there afterwards, or what was wanted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "regen/base/file.h"
#include "regen/share/daemon/rights.h"
#include "regen/share/daemon/use_files.h"
#include "regen/share/protocol/listen_socket.h"
#include "regen/share/protocol/state_file.h"
#include "regen/share/scheduler/job_table.h"
#include "tests/share/faults/injected_process.h"

namespace regen::share {
namespace {

// What goes on without an error.
bool harmless(const FailureWindow& window) {
  return !window.failed() || window.failed_with("close") || window.what() == "pread: EINTR" ||
         window.what() == "pwrite: EINTR" || window.what() == "write: EINTR" ||
         window.what() == "read: EINTR" || window.what().ends_with("short");
}

std::set<std::string> names_in(const TemporaryFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path(""))) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// --- State files

std::vector<std::byte> image_of(std::uint64_t step) {
  return std::vector<std::byte>(10'000 + (step >= 3 ? 10'000 : 0), static_cast<std::byte>(step));
}

Status commit(StateFile& file, std::uint64_t step) {
  const auto image = image_of(step);
  const std::span<const std::byte> all(image);
  const std::vector<std::span<const std::byte>> parts{all.first(5000), all.subspan(5000)};
  return file.commit(step, parts);
}

// By another process that opens it, or by this one; 0: there is no image.
std::uint64_t step_in(const std::string& path) {
  if (!std::filesystem::exists(path)) return 0;
  const auto file = StateFile::open(path, {.access = StateFile::Access::kRead});
  if (!file.ok()) {
    ADD_FAILURE() << file.error().message;
    return 0;
  }
  std::vector<std::byte> image(static_cast<std::size_t>(file->newest()->bytes));
  EXPECT_TRUE(file->read(0, image).ok());
  EXPECT_EQ(image, image_of(file->newest()->step));
  return file->newest()->step;
}

// From step `from`; 3 is larger than the steps before it, so that the file is made anew.
void commit_next(FailureWindow& window, std::uint64_t from) {
  const TemporaryFolder folder;
  const std::string path = folder.path("state");
  const std::size_t files = open_files(::getpid());
  if (from > 0) {
    auto before = StateFile::open(path);
    for (std::uint64_t step = 1; step <= from; ++step) ASSERT_TRUE(commit(*before, step).ok());
  }
  window.open();
  auto file = StateFile::open(path);
  const Status status = file.ok() ? commit(*file, from + 1) : Status(file.error());
  window.close();
  EXPECT_EQ(step_in(path), status.ok() ? from + 1 : from);
  // The folder was there before: whether it is on the disk is not what a commit fails for.
  if (harmless(window)) {
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  if (!status.ok()) {
    EXPECT_TRUE(is_one_line(status.error().message));
  }
  if (!file.ok()) file = StateFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(commit(*file, from + 1).ok()) << "the next one goes on";
  EXPECT_EQ(step_in(path), from + 1);
  file = bad_input("closed");
  EXPECT_EQ(open_files(::getpid()), files);
  EXPECT_EQ(names_in(folder), (std::set<std::string>{"state", "state.lock"}));
}

TEST(FileFaults, OfAStateFileThatIsWritten) {
  int sites = 0;
  const char* scenarios[] = {"a state file that is new", "a state file with one image",
                             "a state file that grows"};
  for (const std::uint64_t from : {0, 1, 2}) {
    sites += fail_each_call(scenarios[from], [from](FailureWindow& window) {
               commit_next(window, from);
             }).total;
  }
  EXPECT_GE(sites, 150);
}

TEST(FileFaults, OfAStateFileThatIsRead) {
  const TemporaryFolder folder;
  const std::string path = folder.path("state");
  auto writer = StateFile::open(path);
  ASSERT_TRUE(commit(*writer, 1).ok());
  const Sites sites = fail_each_call("a state file that is read", [&](FailureWindow& window) {
    std::vector<std::byte> image(image_of(1).size());
    window.open();
    const auto file = StateFile::open(path, {.access = StateFile::Access::kRead});
    const Status status = file.ok() ? file->read(0, image) : Status(file.error());
    window.close();
    EXPECT_EQ(status.ok(), harmless(window));
    if (status.ok()) {
      EXPECT_EQ(image, image_of(1));
    }
  });
  EXPECT_GE(sites.total, 20);
}

// --- The job table

TEST(FileFaults, OfTheJobTable) {
  const TemporaryFolder folder;
  const std::string path = folder.path("jobs");
  JobTableEntry job{.name = "a", .identity = "a", .device = "cpu", .process = ::getpid()};
  job.process_start = process_start(::getpid()).value_or(0);
  job.process_namespace = process_namespace();
  const auto table = [&](Bytes bytes) {
    job.bytes = bytes;
    return std::vector<JobTableEntry>{job};
  };
  const Sites written = fail_each_call("a job table that is written", [&](FailureWindow& window) {
    ASSERT_TRUE(write_job_table(path, table(1)).ok());
    const Status status = window.during([&] { return write_job_table(path, table(2)); });
    const auto now = read_job_table(path);
    ASSERT_TRUE(now.ok() && now->size() == 1);
    EXPECT_EQ(now->front().bytes, status.ok() ? 2 : 1);
    EXPECT_EQ(status.ok(),
              !window.failed() || window.failed_with("EINTR") || window.what() == "write: short");
    EXPECT_EQ(names_in(folder), std::set<std::string>{"jobs"});
  });
  EXPECT_GE(written.total, 12);
  const Sites read = fail_each_call("a job table that is read", [&](FailureWindow& window) {
    ASSERT_TRUE(write_job_table(path, table(3)).ok());
    const auto now = window.during([&] { return read_job_table(path); });
    // Never fewer jobs than there are.
    EXPECT_TRUE(now.ok() ? now->size() == 1 : is_one_line(now.error().message));
  });
  EXPECT_GE(read.total, 12);
}

// --- What the daemon keeps beside its socket

TEST(FileFaults, OfFilesOfDeviceUse) {
  const Sites sites = fail_each_call("files of device use", [](FailureWindow& window) {
    const TemporaryFolder folder;
    const std::size_t files = open_files(::getpid());
    const std::string path = folder.path("use");
    {
      auto before = UseFiles::open(path);
      ASSERT_TRUE(before.ok() && before->set_last_holder(0, 4).ok());
      window.open();
      auto now = UseFiles::open(path);
      Result<UseNumber> last = now.ok() ? now->last_holder(0) : Result<UseNumber>(now.error());
      Result<UseFile> made = now.ok() ? now->make() : Result<UseFile>(now.error());
      const bool noted = last.ok() && now->set_last_holder(0, 5).ok();
      window.close();
      if (last.ok()) {
        EXPECT_EQ(*last, 4);
        EXPECT_TRUE(noted || window.failed_with("pwrite"));
        EXPECT_TRUE(now->write_down().ok()) << "what could not be written is written later";
        auto next = UseFiles::open(path);
        EXPECT_EQ(*next->last_holder(0), 5);
      }
      EXPECT_TRUE(made.ok() || window.failed());
    }
    EXPECT_EQ(open_files(::getpid()), files);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path), {}), 1) << "the holders";
  });
  EXPECT_GE(sites.total, 18);
}

TEST(FileFaults, OfListenSockets) {
  const Sites sites = fail_each_call("a listen socket", [](FailureWindow& window) {
    const TemporaryFolder folder;
    const std::size_t files = open_files(::getpid());
    const std::string path = folder.path("inner") + "/s";
    const ListenSocket::Server server{.name = "a daemon", .expected = "another"};
    {
      const auto opened = window.during([&] { return ListenSocket::open(path, 0600, server); });
      EXPECT_TRUE(opened.ok() || is_one_line(opened.error().message));
      EXPECT_EQ(std::filesystem::exists(path), opened.ok());
      if (opened.ok()) {
        EXPECT_FALSE(ListenSocket::open(path, 0600, server).ok()) << "the lock is held";
      }
    }
    EXPECT_EQ(open_files(::getpid()), files);
    EXPECT_TRUE(ListenSocket::open(path, 0600, server).ok()) << "the next one serves";
  });
  EXPECT_GE(sites.total, 16);
}

// A server that stops in the middle of looking: its lock stays with it.
TEST(FileFaults, ALockIsNotLostWhenItIsAskedForAgain) {
  const Sites sites = fail_each_call("a lock that is held", [](FailureWindow& window) {
    const TemporaryFolder folder;
    const std::string path = folder.path("lock");
    const auto held = FileLock::take(path);
    ASSERT_TRUE(held.ok());
    const bool twice = window.during([&] {
      const bool taken = FileLock::take(path).ok();
      (void)FileLock::owner(path);
      return taken;
    });
    EXPECT_FALSE(twice);
    Process other([&] { return FileLock::take(path).ok() ? 1 : 0; });
    EXPECT_EQ(other.wait(), 0) << "another process took a lock that is held";
  });
  EXPECT_GE(sites.total, 2);
}

TEST(FileFaults, OfAPolicy) {
  const TemporaryFolder folder;
  const std::string path = folder.path("policy");
  ASSERT_TRUE(write_file(path, R"({"default": {"jobs": 3}})").ok());
  const Sites sites = fail_each_call("a policy", [&](FailureWindow& window) {
    const auto rights = window.during([&] { return Rights::read(path); });
    EXPECT_TRUE(rights.ok() ? rights->limits_of({.user = 5}).jobs == 3 : window.failed())
        << "other rights than the file says";
  });
  EXPECT_GE(sites.total, 10);
}

}  // namespace
}  // namespace regen::share
