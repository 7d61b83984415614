// Stretches of a step that are launched as a whole.
#include "regen/execute/run/executor.h"

namespace regen::execute {
namespace {

constexpr int kOften = 3;  // scalars that changed so often will change again

}  // namespace

void Executor::find_repeated() {
  StretchRules rules;
  rules.scalars = scalar_changes_ < kOften;
  std::vector<Stretch> stretches;
  const auto find = [&](std::size_t first, std::size_t last) {
    for (Stretch& stretch : find_stretches(list_, recording_->program, first, last, rules)) {
      stretches.push_back(std::move(stretch));
    }
  };
  for (const Part& part : parts_) {
    // A step can be paused between quanta, so none is crossed.
    std::vector<std::size_t> cuts = part.quanta.empty() ? std::vector{part.first} : part.quanta;
    cuts.push_back(part.last);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) find(cuts[i], cuts[i + 1]);
  }
  forget_repeated();
  repeated_.reset(std::move(stretches));
}

// What is captured may be under way.
void Executor::forget_repeated() {
  if (repeated_.captured() > 0) device_->synchronize();
  repeated_.forget();
}

void Executor::note_changed_scalars() {
  ++scalar_changes_;
  if (scalar_changes_ == kOften) {
    find_repeated();
  } else if (scalar_changes_ < kOften) {
    forget_repeated();
  }
}

// False: call by call, as nothing has been done yet.
bool Executor::run_whole(Stretch& stretch, const PlacementScope& placement) {
  if (stretch.refused || (!stretch.work && !repeated_.is_settled())) return false;
  if (!stretch.work) {
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): capturing adds to them
    const std::vector<Deviation> deviations = placement.deviations();
    stretch.work = device_->capture([this, first = stretch.first, last = stretch.last] {
      for (std::size_t i = first; i < last; ++i) {
        run_compute(list_.computes[list_.instructions[i].index], *placement_);
      }
    });
    // An operator that behaves otherwise while it is captured would do so in every launch.
    if (placement.deviations() != deviations) stretch.work.reset();
    stretch.refused = stretch.work == nullptr;
    if (stretch.refused) return false;
  }
  stretch.work->launch();
  return true;
}

}  // namespace regen::execute
