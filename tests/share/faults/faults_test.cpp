// The figures of docs/explanation/sharing.md, "Failures": everything that can be killed is killed,
// everything that can be sent is sent, and the results of the others stay what they would be alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include "regen/base/random.h"
#include "tests/share/faults/chain_job.h"
#include "tests/share/support/processes.h"
#include "tests/share/support/stranger.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

constexpr Bytes kDevice = kChainDevice;

// 500 short jobs take most of a minute; REGEN_EXHAUSTIVE=1 asks for them.
int waves_of_short_jobs() {
  return std::getenv("REGEN_EXHAUSTIVE") != nullptr ? 100 : 3;
}

DaemonOptions fault_daemon(const TemporaryFolder& folder) {
  DaemonOptions options = test_daemon(folder);
  options.devices = {{"cpu", kDevice}};
  options.settle = 20'000'000;
  return options;
}

JobSpec survivor(int number) {
  const std::string name = "survivor " + std::to_string(number);
  if (number == 2) {
    return {.name = name, .memory = 300, .persistent_bytes = 50, .deepest = Depth::kSpill};
  }
  return {.name = name,
          .priority = number,
          .memory = 400,
          .points = {{400, 10'000'000}, {300, 12'000'000}, {200, 20'000'000}}};
}

JobSpec victim(int round) {
  JobSpec spec{.name = "victim", .priority = round % 3, .memory = 100 + round % 5 * 50};
  if (round % 4 == 1) spec.points = {{spec.memory, 5}, {100, 9}};
  if (round % 4 == 2) {
    spec.persistent_bytes = 40;
    spec.deepest = Depth::kLeave;
  }
  return spec;
}

struct Footprint {
  std::size_t descriptors = 0;
  long pages = 0;
};

Footprint footprint(pid_t process) {
  Footprint result;
  const std::string folder = "/proc/" + std::to_string(process);
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder + "/fd")) {
    ++result.descriptors;
  }
  std::ifstream sizes(folder + "/statm");
  long total = 0, resident = 0, shared = 0;
  sizes >> total >> resident >> shared;
  result.pages = resident - shared;
  return result;
}

// The least of a while: the connection that asks for the report is a descriptor as well.
Footprint at_rest(const std::string& socket, pid_t process) {
  EXPECT_TRUE(eventually([&] { return report(socket)["connections"] == 1; }));
  Footprint least = footprint(process);
  for (int look = 0; look < 20; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Footprint now = footprint(process);
    least.descriptors = std::min(least.descriptors, now.descriptors);
  }
  return least;
}

// What the allocator keeps for itself: a quarter of a MiB, but a sanitizer keeps all it can.
#ifdef REGEN_SANITIZED
constexpr long kAllocatorsPages = 1 << 20;
#else
constexpr long kAllocatorsPages = 64;
#endif

void expect_no_more_than(const Footprint& before, pid_t process) {
  EXPECT_TRUE(eventually([&] { return footprint(process).descriptors == before.descriptors; }));
  EXPECT_LT(footprint(process).pages, before.pages + kAllocatorsPages);
}

class Survivors {
 public:
  Survivors(Device& device, const std::string& socket) {
    for (std::size_t i = 0; i < 3; ++i) {
      jobs_.emplace_back([&device, socket, i] {
        return ChainJob(device, i, 1000 + i).run(socket, survivor(static_cast<int>(i)), INT32_MAX);
      });
    }
  }
  void end(Device& device) {
    device.stop = 1;
    for (Process& job : jobs_) EXPECT_EQ(job.wait(), 0);
    EXPECT_EQ(device.wrong, 0) << "a result changed";
    EXPECT_EQ(device.overfull, 0) << "more bytes on the device than it has";
  }

 private:
  std::vector<Process> jobs_;
};

// Kills one victim at a random moment of its short life.
void kill_one(Device& device, const std::string& socket, Random& random, int round) {
  const std::size_t slot = 3 + static_cast<std::size_t>(round % 5);
  Process victim_process(
      [&] { return ChainJob(device, slot, 7).run(socket, victim(round), INT32_MAX); });
  std::this_thread::sleep_for(std::chrono::microseconds(random.between(0, 20'000)));
  victim_process.signal(SIGKILL);
  victim_process.wait();
  device.slots[slot].process = 0;
}

TEST(Faults, ClientsAreKilledAtAnyMoment) {
  TemporaryFolder folder;
  const DaemonOptions options = fault_daemon(folder);
  const Process daemon = start_daemon(options);
  Device& device = new_device();
  Random random(11);
  for (int round = 0; round < 20; ++round) kill_one(device, options.socket, random, round);
  const Footprint before = at_rest(options.socket, daemon.id());
  {
    Survivors survivors(device, options.socket);
    for (int round = 0; round < 1000; ++round) {
      kill_one(device, options.socket, random, round);
    }
    survivors.end(device);
  }
  EXPECT_GT(device.replans, 0) << "running jobs made room";
  EXPECT_GT(device.rooms, 0) << "by spilling too";
  RecordProperty("quanta", device.quanta.load());
  RecordProperty("plans", device.replans.load());
  ASSERT_TRUE(eventually([&] { return report(options.socket)["connections"] == 1; }));
  const Json cpu = report(options.socket)["devices"][0];
  EXPECT_EQ(cpu["used_bytes"], 0);
  EXPECT_TRUE(cpu["jobs"].empty() && cpu["newcomers"].empty());
  expect_no_more_than(before, daemon.id());
}

TEST(Faults, DaemonsAreKilledAtAnyMoment) {
  TemporaryFolder folder;
  const DaemonOptions options = fault_daemon(folder);
  std::vector<Process> daemon;
  daemon.push_back(start_daemon(options));
  Device& device = new_device();
  Survivors survivors(device, options.socket);
  Random random(12);
  for (int round = 0; round < 50; ++round) {
    const int before = device.quanta;
    ASSERT_TRUE(eventually([&] { return device.quanta > before + 20; })) << "round " << round;
    kill_one(device, options.socket, random, round);
    std::this_thread::sleep_for(std::chrono::microseconds(random.between(0, 50'000)));
    daemon.back().signal(SIGKILL);
    EXPECT_EQ(daemon.back().wait(), 128 + SIGKILL);
    daemon.clear();
    daemon.push_back(start_daemon(options));
  }
  const int before = device.quanta;
  ASSERT_TRUE(eventually([&] { return device.quanta > before + 20; }));
  survivors.end(device);
}

// --- What is sent

std::string broken_message(Random& random) {
  const std::string good =
      frame(R"({"name":"a","identity":"b","memory":5,"points":[[5,0.1]],"deepest":"spill"})");
  std::string bytes = good;
  switch (random.between(0, 9)) {
    case 0:  // a length that is wrong, huge or nothing
      for (std::size_t i = 8; i < 12; ++i) bytes[i] = static_cast<char>(random.next());
      return bytes;
    case 1:  // another version
      bytes[4] = static_cast<char>(random.between(2, 255));
      return bytes;
    case 2:  // half
      return bytes.substr(0, static_cast<std::size_t>(random.between(1, 40)));
    case 3:  // nothing at all
      return "";
    case 4:  // the largest that is allowed, and no JSON
      return frame(std::string(kMaxRequestBytes, '['));
    case 5:  // more than is allowed
      return frame(std::string(kMaxRequestBytes + 1, ' '));
    case 6:  // the wrong state
      return frame(R"({"used_bytes":1,"left_bytes":1,"generation":0})",
                   static_cast<MessageType>(random.between(2, 4) + random.between(0, 1) * 5));
    case 7:  // any type
      return frame("{}", static_cast<MessageType>(random.between(0, 65535)));
    case 8:  // a job that makes no sense
      return frame(
          R"({"name":"a","identity":"b","memory":5,"persistent_bytes":6,"least_bytes":-1})");
    default:  // bytes that flip
      for (auto changes = random.between(1, 4); changes > 0; --changes) {
        bytes[random.next() % bytes.size()] = static_cast<char>(random.next());
      }
      return bytes;
  }
}

TEST(Faults, MalformedMessages) {
  TemporaryFolder folder;
  const DaemonOptions options = fault_daemon(folder);
  const Process daemon = start_daemon(options);
  Device& device = new_device();
  Random random(13);
  const auto send_some = [&](int count) {
    for (int round = 0; round < count; ++round) {
      Stranger stranger(options.socket);
      stranger.send(broken_message(random));
      if (round % 7 == 0) {
        stranger.end();
        (void)stranger.rest();
      }
    }
    ASSERT_TRUE(eventually([&] {
      const Json status = report(options.socket);
      return status["connections"] == 1 && status["devices"][0]["jobs"].empty();
    }));
  };
  send_some(200);
  const Footprint before = at_rest(options.socket, daemon.id());
  send_some(10'000);
  expect_no_more_than(before, daemon.id());
  EXPECT_GT(report(options.socket)["refused_messages"], 5000);
  // And beside jobs that run.
  Survivors survivors(device, options.socket);
  for (int round = 0; round < 1000; ++round) {
    Stranger(options.socket).send(broken_message(random));
  }
  const int quanta = device.quanta;
  ASSERT_TRUE(eventually([&] { return device.quanta > quanta + 20; }));
  survivors.end(device);
}

TEST(Faults, AThousandConnectionsAndAFloodOfShortJobs) {
  TemporaryFolder folder;
  DaemonOptions options = fault_daemon(folder);
  options.patience = 60'000'000'000;
  const Process daemon = start_daemon(options);
  Device& device = new_device();
  const Footprint before = at_rest(options.socket, daemon.id());
  {
    Survivors survivors(device, options.socket);
    std::vector<std::unique_ptr<Stranger>> crowd;
    for (int i = 0; i < 1000; ++i) {
      crowd.push_back(std::make_unique<Stranger>(options.socket));
      ASSERT_TRUE(crowd.back()->connected());
      crowd.back()->send(i % 2 == 0 ? "RG" : frame("{}", MessageType::kStatus));
    }
    for (int wave = 0; wave < waves_of_short_jobs(); ++wave) {
      std::vector<Process> jobs;
      for (std::size_t slot = 3; slot < 8; ++slot) {
        jobs.emplace_back([&, slot] {
          const JobSpec spec{.name = "short", .priority = wave % 3, .memory = 20};
          return ChainJob(device, slot, slot).run(options.socket, spec, 2);
        });
      }
      for (Process& job : jobs) EXPECT_EQ(job.wait(), 0);
    }
    survivors.end(device);
  }
  ASSERT_TRUE(eventually([&] { return report(options.socket)["connections"] == 1; }));
  EXPECT_EQ(report(options.socket)["devices"][0]["used_bytes"], 0);
  EXPECT_EQ(report(options.socket)["devices"][0]["finished_jobs"], 5 * waves_of_short_jobs() + 3);
  EXPECT_TRUE(eventually([&] { return footprint(daemon.id()).descriptors == before.descriptors; }));
}

TEST(Faults, WhoLacksTheSocketsPermissionDoesNotGetIn) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  TemporaryFolder folder;
  const DaemonOptions options = fault_daemon(folder);
  const Process daemon = start_daemon(options);
  ASSERT_EQ(::chmod(folder.path("").c_str(), 0755), 0) << "only the socket itself is the door";
  const auto as_nobody = [&](const std::function<bool()>& body) {
    Process nobody([&] {
      constexpr uid_t kNobody = 65534;
      if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return 2;
      return body() ? 1 : 0;
    });
    return nobody.wait();
  };
  EXPECT_EQ(as_nobody([&] { return Stranger(options.socket).connected(); }), 0);
  EXPECT_EQ(as_nobody([&] {
              const auto client = Client::connect({.socket = options.socket}, {.name = "nobody"});
              return client.ok() || client.error().message.find("may not use") == std::string::npos;
            }),
            0);
  for (const char* beside : {"s.use", "s.jobs", "s.lock"}) {
    EXPECT_EQ(as_nobody([&] {
                return ::access(folder.path(beside).c_str(), R_OK) == 0 ||
                       ::access(folder.path(beside).c_str(), W_OK) == 0;
              }),
              0)
        << beside;
  }
  EXPECT_EQ(report(options.socket)["connections"], 1);
}

}  // namespace
}  // namespace regen::share
