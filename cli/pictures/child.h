// Runs another program without a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"

namespace regen::cli {

struct ChildResult {
  int status = 0;  // exit status, or 128 + the signal that ended it
  std::string output;
  std::string errors;
};

// Looks command[0] up in PATH, gives it `input` on standard input and `environment` (NAME=VALUE)
// on top of this program's own, and waits for it. An error when it cannot be started.
Result<ChildResult> run_child(const std::vector<std::string>& command, std::string_view input,
                              const std::vector<std::string>& environment = {});

// The last line that is not empty: where programs say why they gave up.
std::string last_line(const std::string& text);

}  // namespace regen::cli
