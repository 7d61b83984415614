#include "tests/share/support/processes.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <thread>

#include "regen/share/client/channel.h"

namespace regen::share {

TemporaryFolder::TemporaryFolder() {
  char name[] = "/tmp/regen-share-XXXXXX";
  folder_ = ::mkdtemp(name);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Process::Process(const std::function<int()>& body) {
  id_ = ::fork();
  if (id_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    ::_exit(body());
  } catch (...) {
    ::_exit(99);  // it must not go on as a second test program
  }
}

Process::~Process() {
  if (id_ <= 0) return;
  signal(SIGKILL);
  wait();
}

void Process::signal(int number) const {
  ::kill(id_, number);
}

int Process::wait() {
  int status = 0;
  ::waitpid(id_, &status, 0);
  id_ = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

DaemonOptions test_daemon(const TemporaryFolder& folder) {
  return {.socket = folder.path("s"),
          .devices = {{"cpu", Bytes{1} << 30}},
          .turn = 1'000'000,
          .settle = 0,
          .patience = 200'000'000};
}

Process start_daemon(const DaemonOptions& options) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  Process daemon([&] {
    const Status served = serve(options, [&] { (void)!::write(ends[1], "r", 1); });
    return served.ok() ? 0 : 2;
  });
  char ready = 0;
  ::close(ends[1]);
  (void)!::read(ends[0], &ready, 1);
  ::close(ends[0]);
  return daemon;
}

Board& new_board() {
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (memory) Board;
}

bool can_go_on(int process) {
  constexpr unsigned kExiting = 4;  // PF_EXITING
  FILE* file = std::fopen(("/proc/" + std::to_string(process) + "/stat").c_str(), "r");
  if (file == nullptr) return false;
  unsigned flags = kExiting;
  const int read = std::fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %u", &flags);
  std::fclose(file);
  return read == 1 && (flags & kExiting) == 0;
}

void use_device(Board& board) {
  const int self = ::getpid();
  const int before = board.owner.exchange(self);
  // Still held by a process: a collision, unless that process was killed in the middle of its
  // quantum.
  if (before != 0 && before != self && can_go_on(before)) ++board.collisions;
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  int mine = self;
  board.owner.compare_exchange_strong(mine, 0);
  ++board.quanta;
}

Json report(const std::string& socket) {
  const auto answer = ask(socket, {MessageType::kStatus, Json::object()}, MessageType::kReport);
  return answer.ok() ? *answer : Json(nullptr);
}

bool eventually(const std::function<bool()>& condition) {
  for (int step = 0; step < 12000; ++step) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace regen::share
