// How `regen share run` passes its job to the program that it starts: environment variables.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

struct Enrolment {
  std::string socket;
  JobSpec spec;
  // How far the program may be asked to get out of the way once it has planned. Until then it
  // cannot, and `spec` states that.
  Depth deepest = Depth::kSpill;

  bool operator==(const Enrolment&) const = default;
};

// Names and values; variables of an earlier enrolment that this one does not have get no value.
std::vector<std::pair<std::string, std::optional<std::string>>> to_environment(
    const Enrolment& enrolment);

// What this process was started with; nothing when it was not started by `regen share run`. A bad
// value is an error that names its variable.
Result<std::optional<Enrolment>> enrolment_from_environment();
// The same, as an error when there is none.
Result<Enrolment> required_enrolment();

}  // namespace regen::share
