#include "regen/base/progress/progress.h"

#include <algorithm>
#include <utility>

#include "regen/base/progress/progress_board.h"

namespace regen {

std::optional<double> ProgressState::overhead() const {
  if (!best || base <= 0) return std::nullopt;
  return *best / base - 1;
}

std::optional<double> ProgressState::gap() const {
  if (!best || *best <= 0 || bound <= 0) return std::nullopt;
  return std::max(0.0, 1 - bound / *best);
}

Progress::Progress(ProgressState known) {
  ProgressBoard& board = ProgressBoard::of_process();
  if (board.watched()) work_ = board.begin(std::move(known));
}

Progress::~Progress() {
  if (work_) work_->board.end(work_);
}

template <typename Change>
void Progress::change(const Change& change) {
  if (work_) work_->board.change(*work_, change);
}

void Progress::advance(std::size_t pieces) {
  change([&](ProgressState& known) {
    known.done += pieces;
    if (known.total > 0) known.done = std::min(known.done, known.total);
  });
}

void Progress::reach(std::size_t done, std::size_t total) {
  change([&](ProgressState& known) {
    known.done = done;
    known.total = total;
  });
}

void Progress::improve(std::optional<double> best, double bound) {
  change([&](ProgressState& known) {
    if (best && (!known.best || *best < *known.best)) known.best = best;
    known.bound = std::max(known.bound, bound);
  });
}

void Progress::settle(std::optional<double> best, double bound) {
  change([&](ProgressState& known) {
    known.best = best;
    known.bound = best ? std::min(bound, *best) : bound;
  });
}

void Progress::say(const std::string& note) {
  change([&](ProgressState& known) { known.note = note; });
}

}  // namespace regen
