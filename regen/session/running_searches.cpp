#include "regen/session/running_searches.h"

#include <mutex>
#include <vector>

namespace regen::session {
namespace {

class Searches {
 public:
  static Searches& of_process() {
    static Searches searches;
    return searches;
  }
  void add(const std::shared_ptr<search::BackgroundSearch>& search) {
    const std::lock_guard lock(mutex_);
    std::erase_if(searches_, [](const auto& known) { return known.expired(); });
    searches_.push_back(search);
  }
  std::vector<std::shared_ptr<search::BackgroundSearch>> alive() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<search::BackgroundSearch>> found;
    for (const auto& known : searches_) {
      if (auto search = known.lock()) found.push_back(std::move(search));
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<search::BackgroundSearch>> searches_;
};

}  // namespace

void note_search(const std::shared_ptr<search::BackgroundSearch>& search) {
  Searches::of_process().add(search);
}

std::size_t num_searches() {
  return Searches::of_process().alive().size();
}

void stop_all_searches() {
  const auto searches = Searches::of_process().alive();
  for (const auto& search : searches) search->stop();
  for (const auto& search : searches) search->wait();
}

}  // namespace regen::session
