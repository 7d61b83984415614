// Work that may take longer than a second says how far it is. Each piece of work has a Progress object
// and states there what it knows. Watchers show it: a line on the terminal (progress_line.h), or a
// reader of events (progress_board.h). Without a watcher, stating costs one test of a pointer.
//
//   Progress progress({.stage = "measure", .pieces = "ops", .total = ops.size()});
//   for (...) { ...; progress.advance(); }
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "regen/base/units.h"

namespace regen {

// What is known of a piece of work. Texts are plain ASCII, so that a line can be cut anywhere.
struct ProgressState {
  std::string stage;         // one word for programs: "measure"; progress_text.h has it for people
  std::string subject = {};  // for people, behind the stage: "for admission"
  std::string pieces = {};   // what is counted: "ops"
  std::size_t total = 0;     // pieces; 0: not known
  std::size_t done = 0;      // pieces
  std::optional<double> best{};  // the cost of the best plan so far
  double bound = 0;              // no plan costs less; 0: nothing is proven
  double base = 0;               // the cost of keeping everything; 0: not known
  CostUnit unit = CostUnit::kSecond;
  std::string note = {};     // what else is known, for people
  bool background = false;   // the program does not wait for it, so no line shows it
  bool joins = true;         // many of them one after the other are one long work for the line
  std::uint64_t number = 0;  // given when it begins, ascending
  double seconds = 0;        // since it began; filled in for watchers
  bool ended = false;        // likewise

  // Of the best plan; absent where one of the two costs is not known.
  std::optional<double> overhead() const;
  std::optional<double> gap() const;
};

class ProgressBoard;
struct ProgressWork;

// Any thread may call its methods.
class Progress {
 public:
  explicit Progress(ProgressState known);
  ~Progress();  // the work has ended, also by an error
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether there was a watcher when it began.
  bool watched() const { return work_ != nullptr; }
  void advance(std::size_t pieces = 1);
  void reach(std::size_t done, std::size_t total = 0);
  // The least cost and the highest bound of all calls count.
  void improve(std::optional<double> best, double bound);
  // What came out of a search in the end, in place of what was known meanwhile.
  void settle(std::optional<double> best, double bound);
  void say(const std::string& note);

 private:
  template <typename Change>
  void change(const Change& change);

  std::shared_ptr<ProgressWork> work_;
};

}  // namespace regen
