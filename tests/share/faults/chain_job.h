// Jobs that compute in one place of a pretended device, so that each detects when another one uses the
// device or its bytes at the same time.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "regen/share/client/client.h"
#include "tests/share/support/processes.h"

namespace regen::share {

inline constexpr Bytes kChainDevice = 1000;

inline std::uint64_t hash(std::uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdull;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ull;
  return value ^ value >> 33;
}

inline constexpr int kLinks = 64;  // of a chain, in one quantum

// What a job that runs alone computes in so many quanta.
inline std::uint64_t chain_alone(std::uint64_t seed, int quanta) {
  for (int i = 0; i < quanta * kLinks; ++i) seed = hash(seed);
  return seed;
}

// A pretended device: every job computes in the same place, so that a second one spoils the result
// of the first; and how many bytes each job has there.
struct Device {
  struct Slot {
    std::atomic<int> process{0};
    std::atomic<Bytes> bytes{0};
  };
  std::atomic<std::uint64_t> scratch{0};
  std::array<Slot, 8> slots;
  std::atomic<int> overfull{0};  // times that more was there than fits
  std::atomic<int> wrong{0};     // results that were not what they would be alone
  std::atomic<int> quanta{0};
  std::atomic<int> replans{0};
  std::atomic<int> rooms{0};  // made for others
  std::atomic<int> stop{0};
};

inline Device& new_device() {
  void* memory =
      ::mmap(nullptr, sizeof(Device), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (memory) Device;
}

// A job in a slot of its own that computes its chain under the grant, keeps to its bytes, and gives
// its transient memory away when it is asked to.
class ChainJob {
 public:
  // `tries`: how often a call may fail before the job ends.
  ChainJob(Device& device, std::size_t slot, std::uint64_t seed, int tries = 1)
      : device_(device), slot_(device.slots[slot]), seed_(seed), tries_(tries) {}

  int run(const std::string& socket, JobSpec spec, int quanta) {
    auto client = Client::connect({.socket = socket}, spec);
    while (!client.ok() && may_try_again(client.error())) {
      client = Client::connect({.socket = socket}, spec);
    }
    if (!client.ok()) return client.error().code == ErrorCode::kInfeasible ? 3 : 10;
    client->on_make_room([&](Depth depth) {
      ++device_.rooms;
      slot_.bytes = depth == Depth::kLeave ? 0 : spec.persistent_bytes;
      return slot_.bytes.load();
    });
    slot_.process = ::getpid();
    plan_ = client->byte_limit();
    take(spec.deepest == Depth::kPause ? plan_ : spec.persistent_bytes);
    std::uint64_t value = seed_;
    int done = 0;
    for (; done < quanta && device_.stop == 0; ++done) {
      if (!acquire(*client)) return 11;
      take(plan_);
      value = quantum(value, done);
      if (done % 4 == 3) replan(*client);  // the end of a step
      if (done % 50 == 49) client->idle();
    }
    client->idle();
    if (value != chain_alone(seed_, done)) ++device_.wrong;
    slot_.bytes = 0;
    return 0;
  }

  // The last error, and how many there were.
  const std::string& error() const { return error_; }
  int errors() const { return errors_; }

 private:
  bool may_try_again(const Error& error) {
    error_ = error.message;
    return ++errors_ < tries_;
  }
  bool acquire(Client& client) {
    if (client.keep_going()) return true;
    Status status = client.acquire();
    while (!status.ok() && may_try_again(status.error())) status = client.acquire();
    return status.ok();
  }
  void take(Bytes bytes) {
    slot_.bytes = bytes;
    if (sum_of_all() > kChainDevice) ++device_.overfull;
  }
  // Twice the same, or again: while one slot is read, others may shrink and grow.
  Bytes sum_of_all() const {
    std::vector<Bytes> before = bytes_there();
    for (std::vector<Bytes> now = bytes_there(); now != before; now = bytes_there()) {
      before = std::move(now);
    }
    return std::accumulate(before.begin(), before.end(), Bytes{0});
  }
  std::vector<Bytes> bytes_there() const {
    std::vector<Bytes> found;
    for (const Device::Slot& slot : device_.slots) {
      const bool counts = slot.process != 0 && can_go_on(slot.process);
      found.push_back(counts ? slot.bytes.load() : 0);
    }
    return found;
  }
  void replan(Client& client) {
    const Bytes limit = client.byte_limit();
    if (limit == plan_) return;
    if (limit > plan_) client.confirm(plan_);
    plan_ = limit;
    take(plan_);
    client.confirm(plan_);
    ++device_.replans;
  }
  std::uint64_t quantum(std::uint64_t value, int number) {
    device_.scratch = value;
    for (int i = 0; i < kLinks; ++i) {
      if (i % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(10));
      device_.scratch = hash(device_.scratch);
    }
    // Now and then a quantum is longer than a daemon takes to come back.
    if (number % 97 == 96) std::this_thread::sleep_for(std::chrono::milliseconds(60));
    ++device_.quanta;
    return device_.scratch;
  }

  Device& device_;
  Device::Slot& slot_;
  std::uint64_t seed_;
  int tries_;
  int errors_ = 0;
  std::string error_;
  Bytes plan_ = 0;
};

}  // namespace regen::share
