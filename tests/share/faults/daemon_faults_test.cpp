// Every system call of the daemon fails in turn, from its start to its end, in each way that is plausible.
// Either it does not start, with one clear line, or it serves all jobs: at most one registration is
// refused. Never do two jobs use the device at once, nor more bytes than it has; nothing is left open,
// and the next daemon starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "regen/base/file.h"
#include "tests/share/faults/chain_job.h"
#include "tests/share/faults/injected_process.h"
#include "tests/share/trust/trust_fixture.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;
using Scope = FailingCalls::Scope;

void clear(Device& device) {
  new (&device) Device;
}

// Shared by all runs of a test.
Device& the_device() {
  static Device& device = new_device();
  return device;
}

DaemonOptions options_of(const TemporaryFolder& folder) {
  DaemonOptions options = test_daemon(folder);
  options.devices = {{"cpu", kChainDevice}};
  options.settle = 3'000'000;
  options.patience = 10'000'000'000;
  options.holder_patience = 50'000'000'000;  // a test on a machine under load is no hung job
  options.log = Log(folder).writer();
  return options;
}

InjectedProcess::Body serving(const DaemonOptions& options) {
  return [&options](FailureWindow& window, Found& found) {
    const Status served = window.during([&] { return serve(options, [&] { found.ready = 1; }); });
    if (!served.ok()) found.say(served.error().message);
    return served.ok() ? 0 : 2;
  };
}

// A registration that was refused is tried again.
int run_job(Device& device, std::size_t slot, const std::string& socket, const JobSpec& spec,
            int quanta) {
  ChainJob job(device, slot, 100 + slot, 2);
  return job.run(socket, spec, quanta);
}

JobSpec trainer() {
  return {.name = "trainer", .memory = 800, .persistent_bytes = 100, .deepest = Depth::kLeave};
}
JobSpec server() {
  return {.name = "server",
          .priority = 1,
          .memory = 700,
          .points = {{700, 10'000'000}, {400, 20'000'000}},
          .persistent_bytes = 50,
          .deepest = Depth::kSpill};
}

template <typename Question>
bool answered(Question question) {
  return question() || question();  // the first may have been what failed
}

// What is asked beside the turns: the report in both forms, a change, a check, a curve, an error.
int ask_all(const std::string& socket) {
  if (!answered([&] { return report(socket).is_object(); })) return 20;
  const auto metrics = [&] {
    Stranger stranger(socket);
    stranger.send("GET /metrics HTTP/1.1\r\n\r\n");
    return stranger.rest().find("200 OK") != std::string::npos;
  };
  if (!answered(metrics)) return 21;
  const auto change = [&] {
    return ask(socket, {MessageType::kChange, {{"job", "nobody"}, {"priority", 1}}},
               MessageType::kChanged)
               .error()
               .message.find("nobody") != std::string::npos;
  };
  if (!answered(change)) return 22;
  const JobSpec small{.name = "small", .identity = "small", .memory = 40};
  const auto check = [&] {
    return ask(socket, {MessageType::kCheck, to_json(small)}, MessageType::kFits).ok();
  };
  if (!answered(check)) return 23;
  auto client = Client::connect({.socket = socket}, small);
  if (!client.ok()) client = Client::connect({.socket = socket}, small);
  if (!client.ok()) return 24;
  if (!client->update({.least_bytes = 20, .points = {{40, 10}, {20, 20}}}).ok()) return 25;
  if (!client->yield().ok()) return 26;
  const auto priority = [&] {
    return ask(socket, {MessageType::kChange, {{"job", "small"}, {"priority", 2}}},
               MessageType::kChanged)
        .ok();
  };
  if (!answered(priority)) return 27;
  if (!client->yield().ok()) return 28;
  client->confirm(20);
  client->idle();
  return 0;
}

// No job is left, and nothing of what was granted. A report may be some milliseconds old.
int look_for_remains(const std::string& socket) {
  const Json first = report(socket);
  const double before = first.is_object() ? first["age_seconds"].get<double>() : 0;
  const auto empty = [&] {
    const Json all = report(socket);
    return all.is_object() && all["age_seconds"] > before && all["connections"] == 1 &&
           all["devices"][0]["jobs"].empty() && all["devices"][0]["used_bytes"] == 0;
  };
  return eventually(empty) ? 0 : 30;
}

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) names.insert(entry.path().filename().string());
  }
  return names;
}

void expect_no_harm(const Device& device, const FailureWindow& window) {
  SCOPED_TRACE(window.what());
  EXPECT_EQ(device.wrong, 0) << "two jobs used the device at once";
  if (cuts_off(window)) return;
  EXPECT_EQ(device.overfull, 0) << "more bytes on the device than it has";
}

// A job that is cut off may find that its memory was given to others.
void expect_jobs_done(const int (&statuses)[3], const FailureWindow& window) {
  SCOPED_TRACE(window.what());
  for (const int status : statuses) {
    EXPECT_TRUE(status == 0 || (cuts_off(window) && status < 30)) << status;
  }
}

// False: the daemon has not started.
bool expect_started(InjectedProcess& daemon, const FailureWindow& window) {
  if (daemon.wait_until_ready()) return true;
  EXPECT_EQ(daemon.wait(), 2) << daemon.found().text;
  EXPECT_TRUE(window.failed());
  EXPECT_TRUE(is_one_line(daemon.found().text)) << daemon.found().text;
  EXPECT_THAT(daemon.found().text, ::testing::Not(HasSubstr("unexpected")));
  return false;
}

void expect_stopped(InjectedProcess& daemon, const FailureWindow& window,
                    const std::string& folder) {
  daemon.signal(SIGTERM);
  EXPECT_EQ(daemon.wait(), 0) << daemon.found().text;
  SCOPED_TRACE(window.what());
  if (window.failed_with("unlink")) return;  // the next daemon removes what this one could not
  std::set<std::string> left = files_in(folder);
  for (const char* usual : {"log", "s.jobs", "s.lock", "holders"}) left.erase(usual);
  EXPECT_EQ(left, std::set<std::string>()) << "left behind:\n" << *read_file(folder + "/log");
}

void live(FailureWindow& window, const TemporaryFolder& folder) {
  const DaemonOptions options = options_of(folder);
  Device& device = the_device();
  clear(device);
  InjectedProcess daemon(window, serving(options));
  if (!expect_started(daemon, window)) return;
  const std::string& socket = options.socket;
  Process first = in_time([&] { return run_job(device, 0, socket, trainer(), 4); });
  Process second = in_time([&] { return run_job(device, 1, socket, server(), 4); });
  Process asks = in_time([&] { return ask_all(socket); });
  const int statuses[] = {first.wait(), second.wait(), asks.wait()};
  EXPECT_EQ(in_time([&] { return look_for_remains(socket); }).wait(), 0);
  expect_stopped(daemon, window, folder.path(""));
  expect_jobs_done(statuses, window);
  expect_no_harm(device, window);
}

// As a user does that starts it again.
void expect_another_life(const TemporaryFolder& folder) {
  const DaemonOptions options = options_of(folder);
  const Process daemon = start_daemon(options);
  Device& device = the_device();
  clear(device);
  EXPECT_EQ(in_time([&] { return run_job(device, 0, options.socket, trainer(), 1); }).wait(), 0);
  EXPECT_EQ(in_time([&] { return look_for_remains(options.socket); }).wait(), 0);
}

TEST(DaemonFaults, FromAFreshStartToTheEnd) {
  const Sites sites = fail_each_call("a daemon's life", [](FailureWindow& window) {
    const TemporaryFolder folder;
    live(window, folder);
    expect_another_life(folder);
  });
  EXPECT_GE(sites.total, 300);
  EXPECT_GE(sites.of.size(), 25U);
}

// --- The daemon before was killed in the middle of a job's quantum

struct Restart {
  TemporaryFolder folder;
  DaemonOptions options = options_of(folder);
  Device& device = the_device();
};

// A job that leaves the device when it is asked to, and says what it has there. It is refused as long as
// bytes of another job are kept that has not come back.
Result<Client> connect_movable(Device& device, std::size_t slot, const std::string& socket,
                               const JobSpec& spec) {
  auto client = Client::connect({.socket = socket}, spec);
  for (int errors = 0; !client.ok() && errors < 2;) {
    errors += client.error().code == ErrorCode::kInfeasible ? 0 : 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    client = Client::connect({.socket = socket}, spec);
  }
  if (!client.ok()) return client;
  client->on_make_room([&device, slot](Depth) -> Bytes { return device.slots[slot].bytes = 0; });
  return client;
}

Status acquire_with_memory(Client& client, Device& device, std::size_t slot) {
  Status turn = client.acquire();
  if (!turn.ok()) turn = client.acquire();
  if (!turn.ok()) return turn;
  device.slots[slot].bytes = client.spec().memory;
  Bytes all = 0;
  for (const Device::Slot& other : device.slots) all += other.bytes;
  if (all > kChainDevice) ++device.overfull;
  return {};
}

JobSpec movable(const std::string& name, Bytes memory) {
  return {.name = name, .memory = memory, .deepest = Depth::kLeave};
}

// It computes for longer than the new daemon settles, and only then reads its messages.
int run_former_job(Restart& restart) {
  auto client = connect_movable(restart.device, 0, restart.options.socket, movable("former", 700));
  if (!client.ok()) return 10;
  if (!acquire_with_memory(*client, restart.device, 0).ok()) return 11;
  const std::uint64_t mine = 77;
  restart.device.scratch = mine;
  ++restart.device.quanta;
  while (restart.device.stop == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (restart.device.scratch != mine) ++restart.device.wrong;
  for (int round = 0; round < 2; ++round) {
    if (!acquire_with_memory(*client, restart.device, 0).ok()) return 12;
    client->idle();
  }
  restart.device.slots[0].bytes = 0;
  return 0;
}

// The quantum of the former job ends once the newcomers could have done harm.
int end_quantum_later(Device& device) {
  std::this_thread::sleep_for(std::chrono::milliseconds(12));
  device.stop = 1;
  return 0;
}

int run_newcomer(Device& device, std::size_t slot, const std::string& socket, Bytes memory) {
  const JobSpec spec = movable("newcomer " + std::to_string(slot), memory);
  auto client = connect_movable(device, slot, socket, spec);
  if (!client.ok()) return 10;
  if (!acquire_with_memory(*client, device, slot).ok()) return 11;
  device.scratch = slot;
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (device.scratch != slot) ++device.wrong;
  client->idle();
  device.slots[slot].bytes = 0;
  return 0;
}

void restart(FailureWindow& window) {
  Restart now;
  clear(now.device);
  Process former;
  {
    Process before = start_daemon(now.options);
    former = in_time([&] { return run_former_job(now); });
    ASSERT_TRUE(eventually([&] { return now.device.quanta > 0; }));
    before.signal(SIGKILL);
    before.wait();
  }
  InjectedProcess daemon(window, serving(now.options));
  std::optional<Process> another;
  if (!expect_started(daemon, window)) another = start_daemon(now.options);
  const std::string& socket = now.options.socket;
  Process large = in_time([&] { return run_newcomer(now.device, 1, socket, 700); });
  Process small = in_time([&] { return run_newcomer(now.device, 2, socket, 200); });
  Process end = in_time([&] { return end_quantum_later(now.device); });
  const int statuses[] = {former.wait(), large.wait(), small.wait()};
  EXPECT_EQ(in_time([&] { return look_for_remains(socket); }).wait(), 0);
  if (!another) expect_stopped(daemon, window, now.folder.path(""));
  expect_jobs_done(statuses, window);
  expect_no_harm(now.device, window);
}

TEST(DaemonFaults, AfterTheFormerDaemonWasKilled) {
  const Sites sites = fail_each_call("a daemon that follows a killed one", restart);
  EXPECT_GE(sites.total, 200);
}

}  // namespace
}  // namespace regen::share
