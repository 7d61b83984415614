#include "regen/execute/run/warn_once.h"

#include <mutex>
#include <string>
#include <unordered_set>

namespace regen::execute {

void WarnOnce::process(const c10::Warning& warning) {
  static std::mutex mutex;
  static std::unordered_set<std::string> said;
  {
    const std::lock_guard lock(mutex);
    if (!said.insert(warning.msg()).second) return;
  }
  before_->process(warning);
}

}  // namespace regen::execute
