// What sharing costs a job: asking whether it may go on, and a round through the daemon.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "regen/share/client/client.h"
#include "regen/share/daemon/daemon.h"

namespace regen::share {
namespace {

// A daemon in a process of its own.
class DaemonProcess {
 public:
  DaemonProcess() {
    char name[] = "/tmp/regen-bench-XXXXXX";
    folder_ = ::mkdtemp(name);
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    process_ = ::fork();
    if (process_ == 0) {
      const DaemonOptions options{.socket = socket(), .devices = {{"cpu", 1 << 20}}, .settle = 0};
      ::_exit(serve(options, [&] { (void)!::write(ends[1], "r", 1); }).ok() ? 0 : 1);
    }
    char ready = 0;
    (void)!::read(ends[0], &ready, 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~DaemonProcess() {
    ::kill(process_, SIGTERM);
    ::waitpid(process_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string socket() const { return folder_ + "/s"; }

 private:
  std::string folder_;
  pid_t process_ = 0;
};

void BM_KeepGoing(benchmark::State& state) {
  const DaemonProcess daemon;
  auto client = Client::connect({.socket = daemon.socket()}, {.name = "bench"});
  if (!client.ok() || !client->acquire().ok()) return state.SkipWithError("no grant");
  for (auto _ : state) {
    if (!client->keep_going()) return state.SkipWithError("asked to give way");
  }
}
BENCHMARK(BM_KeepGoing);

// Gives the device back and gets it again, with nobody else there.
void BM_IdleAndAcquire(benchmark::State& state) {
  const DaemonProcess daemon;
  auto client = Client::connect({.socket = daemon.socket()}, {.name = "bench"});
  if (!client.ok()) return state.SkipWithError("no daemon");
  for (auto _ : state) {
    client->idle();
    if (!client->acquire().ok()) return state.SkipWithError("no grant");
  }
}
BENCHMARK(BM_IdleAndAcquire)->UseRealTime();

}  // namespace
}  // namespace regen::share
