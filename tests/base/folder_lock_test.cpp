#include "regen/base/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "regen/base/file.h"
#include "tests/base/fresh_folder.h"

namespace regen {
namespace {

using FolderLockTest = FreshFolderTest;

TEST_F(FolderLockTest, IsHeldByOneAtATimeAndLeavesNothing) {
  {
    const FolderLock lock(folder_);
    EXPECT_TRUE(lock.held());
    EXPECT_FALSE(FolderLock(folder_, 0).held());
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
  }
  FolderLock again(folder_, 0);
  EXPECT_TRUE(again.held());
  again.release();
  EXPECT_FALSE(again.held());
  EXPECT_TRUE(FolderLock(folder_, 0).held());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FolderLockTest, WhereThereIsNoFolderNothingIsHeld) {
  EXPECT_FALSE(FolderLock(folder_ / "none").held());
  ASSERT_TRUE(write_file(folder_ / "file", "").ok());
  EXPECT_FALSE(FolderLock(folder_ / "file").held());
}

TEST_F(FolderLockTest, NoAdditionIsLost) {
  const std::string path = folder_ / "number";
  ASSERT_TRUE(write_file(path, "0").ok());
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        const FolderLock lock(folder_, 600);
        EXPECT_TRUE(write_file(path, std::to_string(std::stoi(*read_file(path)) + 1)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*read_file(path), "100");
}

// The child says that it has the lock, and then does nothing until it is killed.
TEST_F(FolderLockTest, WhoIsKilledHasLetGo) {
  int said[2];
  ASSERT_EQ(::pipe(said), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder_);
    const char held = lock.held() ? 'y' : 'n';
    if (::write(said[1], &held, 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(1);
  }
  char held = 0;
  ASSERT_EQ(::read(said[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  EXPECT_FALSE(FolderLock(folder_, 0).held());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(FolderLock(folder_, 0).held());
  ::close(said[0]);
  ::close(said[1]);
}

// As a worker of a data loader may be forked at any moment, and live on.
TEST_F(FolderLockTest, ChildrenDoNotKeepWhatWasReleased) {
  FolderLock lock(folder_);
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  lock.release();
  EXPECT_TRUE(FolderLock(folder_, 0).held());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace regen
