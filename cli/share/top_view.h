// What `regen share top` shows, as lines of text: made of the daemon's reports, one after the other.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "regen/base/json.h"

namespace regen::cli {

struct TopShape {
  std::size_t columns = 0;  // 0: any number
  bool utf8 = false;        // whether more than ASCII may be drawn
};

class TopView {
 public:
  // A report that comes again counts once.
  void add(Json report);
  // A block for each device: its numbers, its jobs, and those that wait for memory.
  std::vector<std::string> lines(const TopShape& shape) const;
  // How long the daemon has run, and how many connections it has.
  std::string summary() const;

 private:
  static constexpr std::size_t kHistory = 60;  // reports

  // In the time between the last two reports; nothing where there was none before.
  struct Rate {
    std::optional<double> fraction = {};  // of that time
    std::optional<double> turns = {};     // in a second
    std::deque<double> history = {};      // of the fraction, newest last
  };
  // Device and identity; that is empty for the device itself.
  using Key = std::pair<std::string, std::string>;
  // How much of the device's time, and how many turns, there were so far.
  struct Count {
    double time = 0;
    double turns = 0;
  };

  static std::map<Key, Count> counts_of(const Json& report);
  Rate rate(const Json& device, const std::string& identity) const;
  std::vector<std::string> device_lines(const Json& device, const TopShape& shape) const;
  std::vector<std::string> job_lines(const Json& device, const TopShape& shape) const;

  Json report_ = nullptr;
  std::map<Key, Rate> rates_;
};

}  // namespace regen::cli
