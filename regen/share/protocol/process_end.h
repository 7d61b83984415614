// The end of another process as an event of a loop. A connection alone may be kept open by
// children.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "regen/share/protocol/page.h"

namespace regen::share {

// A descriptor that is readable once the process has ended; not valid when there is no such
// process.
Descriptor process_descriptor(std::int64_t process);
// Only that process gets it, never another one with its number.
void signal_process(const Descriptor& process, int signal);

class ProcessEnd {
 public:
  // Never calls.
  ProcessEnd() = default;
  // Calls once, from the loop, after the process has ended; never after its own destruction.
  ProcessEnd(asio::io_context& loop, Descriptor process, std::function<void()> then);
  ProcessEnd(ProcessEnd&&) = default;
  ProcessEnd& operator=(ProcessEnd&& other) noexcept;
  ~ProcessEnd();

  // False where the process is not known, and its end neither.
  bool known() const { return watch_ != nullptr; }
  // Only that process gets it, never another one with its number.
  void send_signal(int signal) const;

 private:
  struct Watch;
  static void wait(const std::shared_ptr<Watch>& watch);
  void forget();

  std::shared_ptr<Watch> watch_;
};

}  // namespace regen::share
