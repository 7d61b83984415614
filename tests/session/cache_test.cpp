// A cache may only make a start faster: whatever is wrong with its files is one warning, and the
// session is the one that it would be without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>

#include "regen/base/file.h"
#include "session_fixture.h"

namespace regen::session {
namespace {

using ::testing::HasSubstr;

class Caches : public ::testing::Test {
 protected:
  Caches() : folder_(fresh_folder("cache")) {}

  std::unique_ptr<Session> planned(const std::string& device = "") {
    Settings settings = test_settings("80%");
    settings.cache_folder = folder_;
    const CapturedStep captured(make_chain({.update = true}),
                                execute::make_cpu_device({.name = device}));
    auto session = open_session(captured, settings);
    const Status status = session->plan();
    EXPECT_TRUE(status.ok()) << status.error().message;
    return session;
  }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      found[name.substr(0, name.find_first_of("-."))] = entry.path().string();
    }
    return found;
  }
  static void run(Session& session) {
    // Nothing is bound, so a step cannot run; that it compiles says that the plan fits the step.
    const Status compiled = session.compile();
    EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  }

  const std::string folder_;
};

// What may be wrong with a file.
std::vector<std::string> damaged(const std::string& whole) {
  return {"",
          whole.substr(0, whole.size() / 2),
          "{}",
          "[1, 2]",
          std::string(4, '\0'),
          std::string(100'000, '{'),
          "\xff\xfe garbage"};
}

TEST_F(Caches, ThatAreDamagedAreOneWarningAndMended) {
  const auto first = planned();
  EXPECT_TRUE(first->take_warnings().empty());
  const auto good = files();
  ASSERT_EQ(good.size(), 2U);
  for (const auto& [kind, path] : good) {
    const std::string whole = *read_file(path);
    for (const std::string& text : damaged(whole)) {
      ASSERT_TRUE(write_file(path, text).ok());
      const auto session = planned();
      run(*session);
      const auto warnings = session->take_warnings();
      ASSERT_EQ(warnings.size(), 1U) << kind << ": " << text.substr(0, 40);
      EXPECT_THAT(warnings[0], HasSubstr(kind));
      EXPECT_TRUE(session->take_warnings().empty());
      // The next start finds it right.
      EXPECT_TRUE(planned()->take_warnings().empty()) << kind << ": " << text.substr(0, 40);
    }
    ASSERT_TRUE(write_file(path, whole).ok());
  }
  // Other measurements lead to other plans, beside these.
  for (const auto& [kind, path] : good) EXPECT_TRUE(std::filesystem::exists(path)) << path;
}

TEST_F(Caches, ThatAreNoPlainFilesAreOneWarning) {
  planned();
  for (const auto& [kind, path] : files()) {
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
  }
  const auto session = planned();
  run(*session);
  EXPECT_EQ(session->take_warnings().size(), 1U);
}

TEST_F(Caches, ThatOthersMayWriteToAreNotUsed) {
  planned();
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  const auto before = files();
  for (const auto& [kind, path] : before) std::filesystem::remove(path);
  const auto session = planned();
  run(*session);
  const auto warnings = session->take_warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("others may write to it"));
  EXPECT_TRUE(files().empty());
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
  planned();
  for (const auto& [kind, path] : files()) ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  const auto open = planned();
  EXPECT_EQ(open->take_warnings().size(), 1U);
}

// A home that two machines share, each with a device of its own.
TEST_F(Caches, OfSeveralDevicesStandSideBySide) {
  std::set<std::string> measurements;
  for (int round = 0; round < 2; ++round) {
    for (const char* device : {"Fast Card 80GB", "Fast_Card 80GB", "Slow Card"}) {
      const auto session = planned(device);
      EXPECT_TRUE(session->take_warnings().empty()) << device;
      measurements.insert(session->measurements());
      EXPECT_TRUE(std::filesystem::exists(session->measurements()));
    }
  }
  EXPECT_EQ(measurements.size(), 3U);
}

// As earlier versions named it, for any device.
TEST_F(Caches, AFileOfAnotherDeviceIsNoError) {
  const auto first = planned("one");
  const std::string path = planned("two")->measurements();
  ASSERT_TRUE(write_file(path, *read_file(first->measurements())).ok());
  const auto session = planned("two");
  const auto warnings = session->take_warnings();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("expected \"two\""));
  EXPECT_TRUE(planned("two")->take_warnings().empty());
}

TEST_F(Caches, OfLinksThatAreDamagedAreOneWarningAndMended) {
  const auto device = execute::make_cpu_device();
  int measured = 0;
  const auto get = [&](const std::shared_ptr<CacheFolder>& cache) {
    LinkSourceOptions options{.cache = cache};
    options.measure = [&](execute::ExecutionDevice&) -> Result<Link> {
      ++measured;
      return Link{7, 8, 9};
    };
    return *LinkSource(device, options).get();
  };
  get(std::make_shared<CacheFolder>(folder_));
  const std::string path = folder_ + "/links.json";
  std::vector<std::string> texts = damaged(*read_file(path));
  for (const char* rates : {"[1e-300, 1e-300, 1e-300]", "[1.0, 2.0]", "[1.0, 2.0, 1e300]", "3"}) {
    texts.push_back("{\"" + device->name() + "\": " + rates + "}");
  }
  for (const std::string& text : texts) {
    ASSERT_TRUE(write_file(path, text).ok());
    measured = 0;
    const auto cache = std::make_shared<CacheFolder>(folder_);
    EXPECT_EQ(get(cache), (Link{7, 8, 9}));
    EXPECT_EQ(measured, 1);
    // A file that says nothing of this device is not wrong.
    EXPECT_EQ(cache->take_warning().has_value(), text != "{}") << text.substr(0, 60);
    EXPECT_EQ(get(cache), (Link{7, 8, 9}));
    EXPECT_EQ(measured, 1) << text.substr(0, 60);
  }
}

}  // namespace
}  // namespace regen::session
