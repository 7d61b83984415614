// What a session knows of its plan, as the data of a report page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regen/base/json.h"
#include "regen/base/result.h"
#include "regen/report/facts.h"
#include "regen/session/session.h"

namespace regen::session {

// What only the caller of a session knows.
struct RunFacts {
  std::optional<Bytes> measured_peak;      // with what the caller holds
  std::optional<double> measured_seconds;  // of a whole step
  std::vector<report::IslandFact> islands;
  // Another plan of the same step, shown beside the one in use.
  std::optional<Plan> other;
  std::string other_title;
};

// Of the plan in use. Nothing is planned, measured or run for it.
Result<Json> plan_page(const Session& session, const RunFacts& facts);

}  // namespace regen::session
