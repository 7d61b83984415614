// Every system call of a job's client fails in turn, in each way that is plausible: from looking for the
// daemon to the end, also while a daemon is lost and found again. An operation succeeds, or fails with one
// clear line and succeeds when it is tried again; another job never uses the device at the same time; the
// daemon is left without a trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "regen/share/client/device_lease.h"
#include "tests/share/faults/chain_job.h"
#include "tests/share/faults/injected_process.h"

namespace regen::share {
namespace {

using Scope = FailingCalls::Scope;

constexpr int kTries = 2;

JobSpec spills(const std::string& name) {
  return {.name = name, .memory = 700, .persistent_bytes = 50, .deepest = Depth::kSpill};
}

DaemonOptions options_of(const TemporaryFolder& folder) {
  DaemonOptions options = test_daemon(folder);
  options.devices = {{"cpu", kChainDevice}};
  options.patience = 10'000'000'000;
  options.holder_patience = 50'000'000'000;
  return options;
}

// A daemon, and a job that asks for the device all the time.
class ClientFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_ = start_daemon(options_);
    neighbour_ = Process([&] {
      return ChainJob(device_, 0, 7).run(options_.socket, spills("neighbour"), INT32_MAX);
    });
  }
  void TearDown() override {
    device_.stop = 1;
    EXPECT_EQ(neighbour_.wait(), 0);
    EXPECT_EQ(device_.wrong, 0) << "two jobs used the device at once";
    EXPECT_EQ(device_.overfull, 0) << "more bytes on the device than it has";
  }

  // Nothing but the neighbour.
  void expect_no_trace() const {
    EXPECT_TRUE(eventually([&] {
      const Json all = report(options_.socket);
      return all.is_object() && all["devices"][0]["jobs"].size() == 1;
    }));
  }
  void expect_good(InjectedProcess& job, const FailureWindow& window) const {
    const int status = job.wait();
    SCOPED_TRACE(window.what());
    // A job that is cut off may find that its memory was given to others.
    EXPECT_TRUE(status == 0 || (cuts_off(window) && status == 11)) << status << job.found().text;
    if (cuts_off(window)) device_.overfull = 0;
    if (job.found().text[0] != '\0') {
      EXPECT_TRUE(is_one_line(job.found().text)) << job.found().text;
    }
    expect_no_trace();
  }

  TemporaryFolder folder_;
  DaemonOptions options_ = options_of(folder_);
  Device& device_ = new_device();
  Process daemon_;
  Process neighbour_;
};

TEST_F(ClientFaults, FromLookingForTheDaemonToTheEnd) {
  const auto body = [this](FailureWindow& window, Found& found) {
    return window.during([&] {
      ChainJob job(device_, 1, 9, kTries);
      const int status = job.run(options_.socket, spills("job"), 4);
      if (job.errors() > 0) found.say(job.error());
      device_.slots[1].process = 0;
      return status;
    });
  };
  const Sites sites = fail_each_call("a client's life", [&](FailureWindow& window) {
    InjectedProcess job(window, body);
    expect_good(job, window);
  });
  EXPECT_GE(sites.total, 55);
}

// What is asked beside the turns.
template <typename Operation>
bool succeeds(Found& found, Operation operation) {
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const Status status = operation();
    if (status.ok()) return true;
    found.say(status.error().message);
  }
  return false;
}

int ask_for_all(const std::string& socket, Found& found) {
  std::optional<Client> client;
  const auto connect = [&]() -> Status {
    auto connected = Client::connect({.socket = socket}, {.name = "asks", .memory = 40});
    if (!connected.ok()) return connected.error();
    client.emplace(std::move(*connected));
    return {};
  };
  if (!succeeds(found, connect)) return 10;
  const Curve curve{.least_bytes = 20, .points = {{40, 10}, {20, 20}}};
  if (!succeeds(found, [&] { return client->update(curve); })) return 11;
  if (!succeeds(found, [&] { return client->yield(); })) return 12;
  client->confirm(20);
  client->idle();
  if (!client->poll() && !succeeds(found, [&]() -> Status {
        const auto joined = client->rejoin();
        return joined.ok() ? Status() : Status(joined.error());
      })) {
    return 13;
  }
  if (!succeeds(found, [&] { return client->acquire(); })) return 14;
  const auto status = [&]() -> Status {
    const auto answer = ask(socket, {MessageType::kStatus, Json::object()}, MessageType::kReport);
    return answer.ok() ? Status() : Status(answer.error());
  };
  return succeeds(found, status) ? 0 : 15;
}

TEST_F(ClientFaults, OfCurvesReportsAndIdleJobs) {
  const Sites sites = fail_each_call("what clients ask", [&](FailureWindow& window) {
    InjectedProcess job(window, [this](FailureWindow& own, Found& found) {
      return own.during([&] { return ask_for_all(options_.socket, found); });
    });
    expect_good(job, window);
  });
  EXPECT_GE(sites.total, 65);
}

// A process with a thread that listens while the job is at rest.
int work_under_a_lease(Device& device, const std::string& socket, Found& found) {
  std::shared_ptr<DeviceLease> lease;
  const auto join = [&]() -> Status {
    auto joined = DeviceLease::join({.socket = socket}, {.name = "lease", .memory = 40});
    if (!joined.ok()) return joined.error();
    lease = std::move(*joined);
    return {};
  };
  if (!succeeds(found, join)) return 10;
  for (int step = 0; step < 3; ++step) {
    if (!succeeds(found, [&] { return lease->begin(); })) return 11;
    if (!lease->open() && !succeeds(found, [&] { return lease->wait(); })) return 12;
    const std::uint64_t mine = 1000 + static_cast<std::uint64_t>(step);
    device.scratch = mine;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (device.scratch != mine) ++device.wrong;
    lease->end({.gives_back = step == 1});
  }
  return 0;
}

TEST_F(ClientFaults, OfAProcessWhoseThreadsShareOneLease) {
  const auto body = [&](FailureWindow& window) {
    InjectedProcess job(window, [this](FailureWindow& own, Found& found) {
      return own.during([&] { return work_under_a_lease(device_, options_.socket, found); });
    });
    expect_good(job, window);
  };
  EXPECT_GE(fail_each_call("a device lease", body, Scope::kAllThreads).total, 50);
}

// --- The daemon is lost and found

int go_on_with_another_daemon(Device& device, const std::string& socket, Found& found,
                              FailureWindow& window) {
  auto client = Client::connect({.socket = socket}, {.name = "job", .memory = 40});
  if (!client.ok() || !client->acquire().ok()) return 10;
  found.ready = 1;
  while (device.stop == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  window.open();
  for (int round = 0; round < 2; ++round) {
    if (!succeeds(found, [&] { return client->acquire(); })) return 11;
    if (!client->holding()) return 12;
    client->idle();
  }
  window.close();
  return client->reconnections() >= 1 ? 0 : 13;
}

TEST(LostDaemonFaults, WhileItIsFoundAgain) {
  Device& device = new_device();
  const Sites sites =
      fail_each_call("a client whose daemon is replaced", [&](FailureWindow& window) {
        const TemporaryFolder folder;
        const DaemonOptions options = options_of(folder);
        device.stop = 0;
        Process first = start_daemon(options);
        InjectedProcess job(window, [&](FailureWindow& own, Found& found) {
          return go_on_with_another_daemon(device, options.socket, found, own);
        });
        ASSERT_TRUE(job.wait_until_ready());
        first.signal(SIGKILL);
        first.wait();
        const Process second = start_daemon(options);
        device.stop = 1;
        EXPECT_EQ(job.wait(), 0) << job.found().text;
        EXPECT_TRUE(eventually([&] {
          const Json all = report(options.socket);
          return all.is_object() && all["devices"][0]["jobs"].empty();
        }));
      });
  EXPECT_GE(sites.total, 40);
}

}  // namespace
}  // namespace regen::share
