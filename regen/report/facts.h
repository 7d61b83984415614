// What a report says of a plan beside what follows from graph and plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regen/base/units.h"
#include "regen/cost/device.h"

namespace regen::report {

// A plan, or the knowledge that there is none, at some bytes: a point of the curve of time over bytes.
struct CurvePoint {
  Bytes bytes = 0;             // the budget, or what the plan takes
  std::optional<double> cost;  // absent: no plan is known
  std::optional<double> lower_bound;

  bool operator==(const CurvePoint&) const = default;
};

// A part of the model that runs as the user's Python.
struct IslandFact {
  std::string name;
  std::string source;  // line of the user's code
  std::string reason;
  Bytes held_bytes = 0;  // from its forward pass to its backward pass
  Bytes work_bytes = 0;  // while it runs
  double seconds = 0;    // both passes
};

// What a run has shown.
struct Measured {
  std::optional<Bytes> peak_bytes;
  std::optional<double> seconds;
  std::vector<std::string> unforeseen;  // ops that allocated otherwise than recorded
};

struct Facts {
  std::string title;                  // of this plan; empty: its planner
  Link link;                          // that the judge counts with
  std::optional<Bytes> budget;        // with what the caller holds
  Bytes caller_bytes = 0;             // beside the plan, of the budget
  std::optional<double> lower_bound;  // of the cost of all plans within the budget
  Measured measured;
  std::vector<CurvePoint> curve;  // ascending in bytes
  std::vector<IslandFact> islands;
};

}  // namespace regen::report
