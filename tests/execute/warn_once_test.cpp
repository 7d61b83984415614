#include "regen/execute/run/warn_once.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace regen::execute {
namespace {

class Listener : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { heard.push_back(warning.msg()); }
  std::vector<std::string> heard;
};

TEST(WarnOnce, SaysEachWarningOnceInTheProcess) {
  Listener listener;
  const c10::WarningUtils::WarningHandlerGuard listening(&listener);
  for (int step = 0; step < 3; ++step) {
    const WarnOnce once;
    TORCH_WARN("weights are scattered");
    TORCH_WARN("weights are ", "old");
  }
  EXPECT_EQ(listener.heard, (std::vector<std::string>{"weights are scattered", "weights are old"}));
}

TEST(WarnOnce, LeavesOthersAloneWhenItEnds) {
  Listener listener;
  const c10::WarningUtils::WarningHandlerGuard listening(&listener);
  { const WarnOnce once; }
  TORCH_WARN("outside");
  TORCH_WARN("outside");
  EXPECT_EQ(listener.heard.size(), 2u);
}

}  // namespace
}  // namespace regen::execute
