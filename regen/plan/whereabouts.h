// Where a plan has each tensor while an op runs for the first time, and how it comes back.
#pragma once

#include <cstdint>
#include <string_view>

#include "regen/plan/plan.h"

namespace regen {

enum class Whereabouts : std::uint8_t {
  kHeld,       // on the device
  kMoved,      // not there; a fetch brings it back
  kMadeAgain,  // not there; its maker runs again
  kGone,       // was there, and is never needed again
  kNotMade,    // its maker has not run yet
};

std::string_view to_string(Whereabouts whereabouts);

// Fixed tensors are held. `plan` must be valid for `graph`, and so run every op.
IdVector<TensorId, Whereabouts> whereabouts(const Graph& graph, const Plan& plan, OpId op);

// Do the first runs follow the order of the graph?
bool keeps_order(const Plan& plan);

}  // namespace regen
