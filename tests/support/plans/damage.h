// Every known way to damage a valid plan: each kind breaks one rule of
// docs/reference/plan-semantics.md for certain, and says what the validator should complain about.
#pragma once

#include <optional>
#include <span>

#include "regen/base/random.h"
#include "regen/plan/plan.h"
#include "regen/plan/validate.h"
#include "tests/support/plans/sound.h"

namespace regen::testing {

struct Damaged {
  Plan plan;
  ValidationLimits limits;
};

struct DamageKind {
  const char* name;
  // Nothing if the plan has no place for this kind.
  std::optional<Damaged> (*apply)(const Sound& sound, Random& random);
  // The validator's message holds one of these, separated by |.
  const char* expected;
};

std::span<const DamageKind> damage_kinds();

}  // namespace regen::testing
