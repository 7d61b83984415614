// Some operators warn each time they run: under a plan in every step, and when their times are
// measured. While one of these lives, each warning is said once in the process.
#pragma once

#include <c10/util/Exception.h>

namespace regen::execute {

class WarnOnce : private c10::WarningHandler {
 public:
  WarnOnce() : before_(c10::WarningUtils::get_warning_handler()), guard_(this) {}

 private:
  void process(const c10::Warning& warning) override;

  c10::WarningHandler* before_;
  c10::WarningUtils::WarningHandlerGuard guard_;  // of this thread
};

}  // namespace regen::execute
