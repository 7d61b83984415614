#include "regen/share/protocol/process_end.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <asio/posix/stream_descriptor.hpp>
#include <utility>

namespace regen::share {
namespace {

bool is_readable(int descriptor) {
  pollfd asked{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&asked, 1, 0) == 1;
}

}  // namespace

Descriptor process_descriptor(std::int64_t process) {
  return Descriptor(process > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, process, 0)) : -1);
}

void signal_process(const Descriptor& process, int signal) {
  if (process.valid()) {
    ::syscall(SYS_pidfd_send_signal, process.number(), signal, nullptr, 0);
  }
}

struct ProcessEnd::Watch {
  asio::posix::stream_descriptor process;
  std::function<void()> then;  // none once the owner is gone
};

ProcessEnd::ProcessEnd(asio::io_context& loop, Descriptor process, std::function<void()> then) {
  if (!process.valid()) return;
  asio::posix::stream_descriptor watched(loop);
  asio::error_code failed;
  watched.assign(process.number(), failed);
  if (failed) return;
  process.release();
  watch_ = std::make_shared<Watch>(Watch{std::move(watched), std::move(then)});
  wait(watch_);
}

ProcessEnd& ProcessEnd::operator=(ProcessEnd&& other) noexcept {
  forget();
  watch_ = std::move(other.watch_);
  return *this;
}

ProcessEnd::~ProcessEnd() {
  forget();
}

void ProcessEnd::forget() {
  if (watch_ == nullptr) return;
  watch_->then = nullptr;
  asio::error_code ignored;
  watch_->process.close(ignored);
  watch_.reset();
}

// Asio gives the record of a closed descriptor to the next one while an event of the first may
// still be on its way, which then wakes the wrong one: only the kernel knows whether the process
// has ended.
void ProcessEnd::wait(const std::shared_ptr<Watch>& watch) {
  watch->process.async_wait(asio::posix::stream_descriptor::wait_read,
                            [watch](asio::error_code cancelled) {
                              if (cancelled || !watch->then) return;
                              if (!is_readable(watch->process.native_handle())) return wait(watch);
                              std::exchange(watch->then, nullptr)();
                            });
}

void ProcessEnd::send_signal(int signal) const {
  if (known()) {
    ::syscall(SYS_pidfd_send_signal, watch_->process.native_handle(), signal, nullptr, 0);
  }
}

}  // namespace regen::share
