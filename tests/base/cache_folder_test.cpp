// Folders of caches: what is not safe is not used, nothing that fails is an error, nothing is left.
#include "regen/base/cache_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>

#include "each_failure.h"
#include "fresh_folder.h"
#include "regen/base/file.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

constexpr CacheKind kThings{"thing", "thing-", 1000, 3, 1500};
constexpr uid_t kStranger = 65534;

class CacheFolders : public FreshFolderTest {
 protected:
  void SetUp() override {
    FreshFolderTest::SetUp();
    path_ = (folder_ / "cache").string();
  }

  void put(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(path_);
    ASSERT_TRUE(write_file(path_ + "/" + name, content).ok());
  }
  static void write(CacheFolder& folder, const std::string& name, const std::string& content) {
    folder.update(kThings, name, [&](const std::optional<std::string>&) { return content; });
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    if (!std::filesystem::is_directory(path_)) return found;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      found.insert(entry.path().filename().string());
    }
    return found;
  }

  std::string path_;
};

TEST_F(CacheFolders, KeepWhatIsWritten) {
  CacheFolder folder(path_);
  EXPECT_EQ(folder.read(kThings, "thing-a"), std::nullopt);
  write(folder, "thing-a", "one");
  EXPECT_EQ(folder.read(kThings, "thing-a"), "one");
  std::optional<std::string> seen;
  folder.update(kThings, "thing-a", [&](const std::optional<std::string>& now) {
    seen = now;
    return std::optional<std::string>();
  });
  EXPECT_EQ(seen, "one");
  EXPECT_EQ(folder.read(kThings, "thing-a"), "one");
  EXPECT_EQ(folder.take_warning(), std::nullopt);
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700U);
  ASSERT_EQ(::stat((path_ + "/thing-a").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
}

TEST_F(CacheFolders, WithoutANameKeepNothing) {
  CacheFolder none("");
  write(none, "thing-a", "one");
  EXPECT_EQ(none.read(kThings, "thing-a"), std::nullopt);
  EXPECT_EQ(none.take_warning(), std::nullopt);
}

TEST_F(CacheFolders, ThatOthersMayWriteToAreNotUsed) {
  put("thing-a", "one");
  for (const mode_t mode : {0770, 0707, 0777}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    CacheFolder folder(path_);
    EXPECT_EQ(folder.read(kThings, "thing-a"), std::nullopt);
    write(folder, "thing-b", "two");
    EXPECT_EQ(names(), std::set<std::string>{"thing-a"});
    EXPECT_THAT(folder.take_warning().value(), HasSubstr("others may write to it"));
    EXPECT_EQ(folder.take_warning(), std::nullopt);  // once
  }
  // As /tmp is: others make files, but do not touch this one.
  ASSERT_EQ(::chmod(path_.c_str(), 01777), 0);
  EXPECT_EQ(CacheFolder(path_).read(kThings, "thing-a"), "one");
}

TEST_F(CacheFolders, OfAnotherOwnerAreNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a folder away";
  put("thing-a", "one");
  ASSERT_EQ(::chown(path_.c_str(), kStranger, kStranger), 0);
  CacheFolder folder(path_);
  EXPECT_EQ(folder.read(kThings, "thing-a"), std::nullopt);
  write(folder, "thing-b", "two");
  EXPECT_EQ(names(), std::set<std::string>{"thing-a"});
  EXPECT_THAT(folder.take_warning().value(), HasSubstr("it belongs to user 65534"));
}

TEST_F(CacheFolders, FilesThatAreNotSafeAreNotRead) {
  put("thing-a", "one");
  put("elsewhere", "two");
  const std::string file = path_ + "/thing-a";
  const auto unread = [&](const std::string& name, const std::string& why) {
    CacheFolder folder(path_);
    EXPECT_EQ(folder.read(kThings, name), std::nullopt) << why;
    EXPECT_THAT(folder.take_warning().value(), HasSubstr(why));
  };
  ASSERT_EQ(::chmod(file.c_str(), 0662), 0);
  unread("thing-a", "others may write to it");
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(file.c_str(), kStranger, kStranger), 0);
    unread("thing-a", "it belongs to user 65534");
    ASSERT_EQ(::chown(file.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(CacheFolder(path_).read(kThings, "thing-a"), "one");
  ASSERT_EQ(::symlink("elsewhere", (path_ + "/thing-l").c_str()), 0);
  unread("thing-l", "thing-l");
  ASSERT_EQ(::mkfifo((path_ + "/thing-p").c_str(), 0600), 0);
  unread("thing-p", "no plain file");
  ASSERT_EQ(::mkdir((path_ + "/thing-d").c_str(), 0700), 0);
  unread("thing-d", "no plain file");
  put("thing-big", std::string(1001, 'x'));
  unread("thing-big", "too large");
}

TEST_F(CacheFolders, OnlyTheFirstProblemIsAWarning) {
  CacheFolder folder(path_);
  folder.distrust("thing-a: it is damaged");
  folder.distrust("thing-b: it is damaged too");
  EXPECT_THAT(folder.take_warning().value(), HasSubstr("thing-a: it is damaged; it is not used"));
  folder.distrust("thing-c: and this");
  EXPECT_EQ(folder.take_warning(), std::nullopt);
}

TEST_F(CacheFolders, HaveABoundForEachKind) {
  CacheFolder folder(path_);
  put("other-kind", std::string(5000, 'x'));
  for (int i = 0; i < 3; ++i) write(folder, "thing-" + std::to_string(i), "x");
  // The first is used again, so the second goes for the fourth.
  const timespec past[2] = {{1, 0}, {1, 0}};
  for (const char* name : {"thing-0", "thing-1"}) {
    ASSERT_EQ(::utimensat(AT_FDCWD, (path_ + "/" + name).c_str(), past, 0), 0);
  }
  EXPECT_TRUE(folder.read(kThings, "thing-0").has_value());
  write(folder, "thing-3", "x");
  EXPECT_EQ(names(), (std::set<std::string>{"other-kind", "thing-0", "thing-2", "thing-3"}));
  // Bytes of all together: what was written last stays.
  write(folder, "thing-4", std::string(900, 'x'));
  write(folder, "thing-5", std::string(900, 'x'));
  EXPECT_EQ(names(), (std::set<std::string>{"other-kind", "thing-5"}));
  write(folder, "thing-6", std::string(1001, 'x'));
  EXPECT_EQ(names(), (std::set<std::string>{"other-kind", "thing-5"}));
  EXPECT_THAT(folder.take_warning().value(), HasSubstr("the thing is not kept"));
}

TEST_F(CacheFolders, RemoveWhatKilledProcessesLeaveBehind) {
  put("thing-a", "one");
  const pid_t child = ::fork();
  if (child == 0) {
    // In the middle of writing, without the lock going to another process first.
    CacheFolder folder(path_);
    folder.update(kThings, "thing-a", [&](const std::optional<std::string>&) {
      ::close(::open((path_ + "/.regen-0123456789abcdef").c_str(), O_CREAT | O_WRONLY, 0600));
      ::kill(::getpid(), SIGKILL);
      return std::optional<std::string>();
    });
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  put(".profile-cpu-2.13.0.4711.0.json", "of an earlier version");
  put(".links.4711.0.json", "of an earlier version");
  put(".mine.json", "a user's");
  EXPECT_EQ(names().size(), 5U);
  CacheFolder folder(path_);
  EXPECT_EQ(folder.read(kThings, "thing-a"), "one");
  write(folder, "thing-b", "two");
  EXPECT_EQ(names(), (std::set<std::string>{".mine.json", "thing-a", "thing-b"}));
}

TEST_F(CacheFolders, AFullDiskIsAWarning) {
  put("thing-a", "one");
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit small{100, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  CacheFolder folder(path_);
  write(folder, "thing-a", std::string(900, 'x'));
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(folder.take_warning().value(), HasSubstr("the thing is not kept"));
  EXPECT_EQ(folder.read(kThings, "thing-a"), "one");
  EXPECT_EQ(names(), std::set<std::string>{"thing-a"});
}

// --- every system call fails in turn

// One use of a folder of caches: read, add, read again.
std::string use(CacheFolder& folder) {
  const auto before = folder.read(kThings, "thing-a");
  folder.update(kThings, "thing-a", [&](const std::optional<std::string>& now) {
    return std::optional(now.value_or("") + "+");
  });
  return before.value_or("nothing");
}

class CallsThatFail : public CacheFolders {
 protected:
  // As it is before each try: `first`: there is no folder yet.
  void arrange(bool first) const {
    std::filesystem::remove_all(path_);
    if (first) return;
    put("thing-a", "one");
    put("thing-old", std::string(900, 'x'));
    put(".regen-left", "behind");
  }

  // Lets each call fail in turn, in each way.
  Sites fail_each(bool first) {
    return fail_each_call(first ? "a cache that is made" : "a cache that is used",
                          [&](FailureWindow& window) {
                            arrange(first);
                            CacheFolder folder(path_);
                            const std::string read = window.during([&] { return use(folder); });
                            EXPECT_TRUE(read == "nothing" || read == "one");
                            expect_whole(window, first, folder);
                          });
  }

  void expect_whole(const FailureWindow& window, bool first, CacheFolder& folder) {
    const auto content = read_file(path_ + "/thing-a");
    const std::string now = content.ok() ? *content : "nothing";
    // As before, or as wanted; and "+" alone where the old content could not be read.
    EXPECT_THAT(now, ::testing::AnyOf(first ? "nothing" : "one", first ? "+" : "one+", "+"));
    const auto warning = folder.take_warning();
    if (now == (first ? "nothing" : "one")) {
      EXPECT_TRUE(warning.has_value());
    }
    EXPECT_EQ(folder.take_warning(), std::nullopt);
    if (window.failed_with("EINTR") || window.what() == "write: short" ||
        window.what() == "read: short") {
      EXPECT_EQ(warning, std::nullopt);
      EXPECT_EQ(now, first ? "+" : "one+");
    }
    if (window.what() == "write: short, then full" && !first) {  // one byte is never half written
      EXPECT_EQ(now, "one");
      EXPECT_THAT(warning.value_or(""), HasSubstr("No space left"));
    }
    // The next use finds nothing in its way, and leaves nothing behind.
    CacheFolder next(path_);
    use(next);
    EXPECT_EQ(next.take_warning(), std::nullopt);
    for (const std::string& file : names()) EXPECT_FALSE(file.starts_with(".")) << file;
  }
};

TEST_F(CallsThatFail, LeaveACacheAsItWasOrAsItWasWanted) {
  const Sites used = fail_each(false);
  for (const char* name : {"open", "openat", "read", "write", "fsync", "close", "renameat",
                           "unlinkat", "fstat", "fstatat", "flock", "futimens", "fdopendir"}) {
    EXPECT_TRUE(used.of.contains(name)) << name;
  }
  const Sites made = fail_each(true);
  EXPECT_TRUE(made.of.contains("mkdir"));
  EXPECT_GE(used.total, 70);
  EXPECT_GE(made.total, 45);
}

TEST_F(CallsThatFail, LeaveAUsersFileAsItWas) {
  const auto body = [&](FailureWindow& window) {
    arrange(false);
    const std::string path = path_ + "/thing-a";
    const Status status = window.during([&] { return write_file(path, "two, and some more"); });
    const bool goes_on =
        !window.failed() || window.failed_with("EINTR") || window.what() == "write: short";
    EXPECT_EQ(status.ok(), goes_on);
    EXPECT_EQ(*read_file(path), goes_on ? "two, and some more" : "one");
    EXPECT_EQ(names(), (std::set<std::string>{".regen-left", "thing-a", "thing-old"}));
  };
  const Sites sites = fail_each_call("a file that is written", body);
  EXPECT_EQ(sites.of.size(), 5U);  // open, write, fsync, close, rename
  EXPECT_GE(sites.total, 14);
}

TEST_F(CallsThatFail, ReadingAUsersFileSaysWhy) {
  const auto body = [&](FailureWindow& window) {
    arrange(false);
    const auto whole = window.during([&] { return read_file(path_ + "/thing-a"); });
    // A file that was only read may be closed in vain.
    const bool goes_on = !window.failed() || window.failed_with("EINTR") ||
                         window.failed_with("close") || window.what() == "read: short";
    EXPECT_EQ(whole.ok(), goes_on);
    if (whole.ok()) {
      EXPECT_EQ(*whole, "one");
    }
  };
  EXPECT_GE(fail_each_call("a file that is read", body).total, 10);
  const auto part = [&](FailureWindow& window) {
    arrange(false);
    const auto some = window.during([&] { return read_file_part(path_ + "/thing-old", 100, 700); });
    EXPECT_EQ(some.ok(), !window.failed() || window.failed_with("EINTR") ||
                             window.failed_with("close") || window.what() == "pread: short");
    if (some.ok()) {
      EXPECT_EQ(*some, std::string(700, 'x'));
    }
  };
  EXPECT_GE(fail_each_call("a part of a file that is read", part).total, 8);
}

}  // namespace
}  // namespace regen
