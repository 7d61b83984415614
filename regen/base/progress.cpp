#include "regen/base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace regen {
namespace {

// Often enough to look alive, seldom enough to cost nothing.
constexpr std::chrono::milliseconds kRedraw{100};

}  // namespace

bool progress_wanted() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

std::string progress_line(const std::string& label, std::size_t done, std::size_t total) {
  constexpr std::size_t kWidth = 30;
  const std::size_t filled = total == 0 ? kWidth : done * kWidth / total;
  std::string bar(filled, '=');
  if (filled < kWidth) bar += '>';
  bar.resize(kWidth, ' ');
  std::string count = std::to_string(done);
  const std::string all = std::to_string(total);
  count.insert(0, all.size() - std::min(all.size(), count.size()), ' ');
  return label + " [" + bar + "] " + count + "/" + all;
}

Progress::Progress(std::string label, std::size_t total)
    : label_(std::move(label)), total_(total), shown_(progress_wanted()) {
  if (shown_) draw();
}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::advance(std::size_t pieces) {
  const std::lock_guard lock(mutex_);
  done_ = std::min(total_, done_ + pieces);
  if (shown_ && std::chrono::steady_clock::now() - last_draw_ >= kRedraw) draw();
}

void Progress::draw() {
  last_draw_ = std::chrono::steady_clock::now();
  std::fprintf(stderr, "\r\033[K%s", progress_line(label_, done_, total_).c_str());
  std::fflush(stderr);
}

}  // namespace regen
