#include "regen/published/checkmate/cpython_set.h"

#include <utility>

namespace regen::published {
namespace {

constexpr std::size_t kLinearProbes = 9;
constexpr unsigned kPerturbShift = 5;
constexpr std::size_t kSlowGrowthSize = 50'000;

// A number is its own hash, but -1 is CPython's error mark and hashes as -2.
std::size_t hash_of(std::size_t number) {
  return number == static_cast<std::size_t>(-1) ? static_cast<std::size_t>(-2) : number;
}

bool too_full(std::size_t used, std::size_t mask) {
  return used * 5 >= mask * 3;
}

}  // namespace

std::size_t CPythonIntSet::find_slot(std::size_t number) const {
  std::size_t perturb = hash_of(number);
  std::size_t home = perturb & mask();
  while (true) {
    // Near the end of the table there is no room for linear probing, so none is done.
    const std::size_t probes = home + kLinearProbes <= mask() ? kLinearProbes : 0;
    for (std::size_t slot = home; slot <= home + probes; ++slot) {
      if (!table_[slot].taken || table_[slot].number == number) return slot;
    }
    perturb >>= kPerturbShift;
    home = (home * 5 + 1 + perturb) & mask();
  }
}

void CPythonIntSet::add(std::size_t number) {
  Slot& slot = table_[find_slot(number)];
  if (slot.taken) return;
  slot = {number, true};
  ++used_;
  if (too_full(used_, mask())) resize(used_ > kSlowGrowthSize ? used_ * 2 : used_ * 4);
}

void CPythonIntSet::resize(std::size_t at_least) {
  std::size_t slots = kMinSlots;
  while (slots <= at_least) slots *= 2;
  const std::vector<Slot> old = std::exchange(table_, std::vector<Slot>(slots));
  for (const Slot& slot : old) {
    if (slot.taken) table_[find_slot(slot.number)] = slot;
  }
}

void CPythonIntSet::merge(const CPythonIntSet& other) {
  if (too_full(used_ + other.used_, mask())) resize((used_ + other.used_) * 2);
  if (used_ == 0 && table_.size() == other.table_.size()) {
    *this = other;
    return;
  }
  // Into an empty table of another size this never grows again: it was made large enough.
  for (const Slot& slot : other.table_) {
    if (slot.taken) add(slot.number);
  }
}

CPythonIntSet CPythonIntSet::union_with(const CPythonIntSet& other) const {
  CPythonIntSet result;
  result.merge(*this);
  result.merge(other);
  return result;
}

std::vector<std::size_t> CPythonIntSet::iteration_order() const {
  std::vector<std::size_t> numbers;
  numbers.reserve(used_);
  for (const Slot& slot : table_) {
    if (slot.taken) numbers.push_back(slot.number);
  }
  return numbers;
}

}  // namespace regen::published
