// When two costs are the same. Costs are sums of thousands of doubles in different orders, so that
// equal plans differ by rounding.
#pragma once

namespace regen {

// Relative; 1e4 times the rounding of a sum of 1e5 terms would still be below it.
inline constexpr double kSameCost = 1e-9;

// a is below b by more than rounding.
inline bool clearly_below(double a, double b) {
  return a < b * (1 - kSameCost);
}

// a is at most b, up to rounding.
inline bool at_most(double a, double b) {
  return a <= b * (1 + kSameCost);
}

}  // namespace regen
