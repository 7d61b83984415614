#include "regen/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/base/fresh_folder.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

class FileTest : public FreshFolderTest {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t num_files() const {
    const std::filesystem::directory_iterator begin(folder_);
    return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }
};

TEST_F(FileTest, ReadsWhatItWrote) {
  std::string content = "text\n";
  content += '\0';
  content += std::string(200'000, 'x');
  ASSERT_TRUE(write_file(path("f.txt"), content).ok());
  EXPECT_EQ(*read_file(path("f.txt")), content);
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(FileTest, ReplacesAnOldFile) {
  ASSERT_TRUE(write_file(path("f"), "old and longer").ok());
  ASSERT_TRUE(write_file(path("f"), "new").ok());
  EXPECT_EQ(*read_file(path("f")), "new");
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(FileTest, WritesNothingAsAnEmptyFile) {
  ASSERT_TRUE(write_file(path("f"), "").ok());
  EXPECT_EQ(*read_file(path("f")), "");
}

TEST_F(FileTest, AnUnwritablePathLeavesNothing) {
  const auto missing = write_file(path("no/such/folder/f"), "x");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message,
              HasSubstr("cannot write '" + path("no/such/folder/f") + "'"));
  // The target is a folder: the finished file cannot be renamed over it and is removed again.
  std::filesystem::create_directory(path("folder"));
  EXPECT_FALSE(write_file(path("folder"), "x").ok());
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(FileTest, AFailedWriteKeepsTheOldFile) {
  ASSERT_TRUE(write_file(path("f"), "old").ok());
  // No file may grow beyond 1000 bytes: a full disk, but for this process only.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit small{1000, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Status status = write_file(path("f"), std::string(100'000, 'x'));
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              HasSubstr("cannot write '" + path("f") + "': File too large"));
  EXPECT_EQ(*read_file(path("f")), "old");
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(FileTest, WritesToADeviceDirectly) {
  EXPECT_TRUE(write_file("/dev/null", "x").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_FALSE(write_file("/dev/full", "x").ok());
}

TEST_F(FileTest, RefusesToReadWhatIsNoFile) {
  EXPECT_EQ(read_file(folder_.string()).error().message,
            "cannot read '" + folder_.string() + "': it is a directory, expected a file");
  EXPECT_EQ(read_file(path("missing")).error().message,
            "cannot read '" + path("missing") + "': No such file or directory");
  EXPECT_FALSE(read_file("").ok());
}

TEST_F(FileTest, RefusesAFileThatIsTooLarge) {
  ASSERT_TRUE(write_file(path("f"), "12345").ok());
  EXPECT_TRUE(read_file(path("f"), 5).ok());
  EXPECT_EQ(read_file(path("f"), 4).error().message,
            "cannot read '" + path("f") + "': larger than 4 bytes, the largest file accepted");
}

TEST_F(FileTest, TemporaryNamesAreFreshAndKeepTheExtension) {
  const std::string first = temporary_beside(path("a.svg"));
  const std::string second = temporary_beside(path("a.svg"));
  EXPECT_NE(first, second);
  EXPECT_TRUE(first.ends_with(".svg"));
  EXPECT_EQ(std::filesystem::path(first).parent_path(), folder_);
  EXPECT_FALSE(std::filesystem::exists(first));
}

TEST_F(FileTest, AFailedRenameRemovesTheFinishedFile) {
  ASSERT_TRUE(write_file(path("from"), "x").ok());
  EXPECT_FALSE(rename_file(path("from"), path("no/such/to")).ok());
  EXPECT_EQ(num_files(), 0u);
}

}  // namespace
}  // namespace regen
