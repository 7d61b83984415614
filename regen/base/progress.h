// A progress bar for work that takes long: one line on standard error, redrawn in place, and
// only when that is a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>

namespace regen {

// Whether standard error is a terminal, the only place for what is there to be watched.
bool progress_wanted();

class Progress {
 public:
  Progress(std::string label, std::size_t total);
  ~Progress();  // wipes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Any thread may call it.
  void advance(std::size_t pieces = 1);

 private:
  void draw();

  std::string label_;
  std::size_t total_;
  std::size_t done_ = 0;
  bool shown_;
  std::chrono::steady_clock::time_point last_draw_;
  std::mutex mutex_;
};

// "sweep [=====>    ]  6/12": `done` must not exceed `total`.
std::string progress_line(const std::string& label, std::size_t done, std::size_t total);

}  // namespace regen
