// Plans that are kept on disk for the next process, by everything that they depend on.
//
// A file is a proposal like that of any planner. What is read goes through the validator, its
// report is computed again by the judge, and one that does not fit the limits is not used; then the
// file is written again. Files appear whole or not at all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "regen/base/cache_folder.h"
#include "regen/base/limit.h"
#include "regen/session/state/planned_step.h"

namespace regen::session {

// Everything that a plan depends on.
struct PlanKey {
  std::uint64_t fingerprint = 0;  // of the graph
  double base_seconds = 0;        // of its measured costs
  std::optional<Bytes> budget;
  std::optional<Bytes> host_budget;
  std::vector<std::string> planners;
  Limits limits;
  Link link;

  // On one line.
  std::string text() const;
};

class PlanCache {
 public:
  // `folder`: where the files are; empty: nothing is kept.
  explicit PlanCache(std::string folder)
      : PlanCache(std::make_shared<CacheFolder>(std::move(folder))) {}
  explicit PlanCache(std::shared_ptr<CacheFolder> folder) : folder_(std::move(folder)) {}

  // Absent where there is no file of this key, or one that may not be used; the second is the
  // folder's warning.
  std::optional<PlannedStep> load(const PlanKey& key, const RecordedStep& recorded) const;
  void save(const PlanKey& key, const PlannedStep& planned) const;

  // Of the file of this key; empty where nothing is kept.
  std::string path(const PlanKey& key) const;

 private:
  std::shared_ptr<CacheFolder> folder_;
};

}  // namespace regen::session
