#include "regen/session/link_source.h"

#include <utility>

#include "regen/base/progress/progress.h"
#include "regen/session/link_file.h"

namespace regen::session {
namespace {

constexpr CacheKind kLinks{"link", "links.", std::size_t{1} << 20, 1, std::size_t{1} << 20};
constexpr const char* kFile = "links.json";
// Of this process, by device.
struct Known {
  std::mutex mutex;
  std::map<std::string, Link> links;
};

Known& known_links() {
  static Known known;
  return known;
}

}  // namespace

Status in_scope(const DeviceScope& scope, const std::function<Status()>& work) {
  return scope ? scope(work) : work();
}

LinkSource::LinkSource(std::shared_ptr<execute::ExecutionDevice> device, LinkSourceOptions options)
    : device_(std::move(device)),
      options_(std::move(options)),
      cache_(options_.cache ? options_.cache : std::make_shared<CacheFolder>(options_.folder)) {}

std::optional<Link> LinkSource::known() const {
  const std::lock_guard lock(mutex_);
  return link_;
}

Result<Link> LinkSource::get() {
  const std::lock_guard lock(mutex_);
  if (!link_) {
    REGEN_ASSIGN(link_, options_.measure ? measure() : find());
  }
  return *link_;
}

Result<Link> LinkSource::find() {
  Known& known = known_links();
  const std::lock_guard lock(known.mutex);
  const std::string where = device_->torch_device().str() + " " + device_->name();
  if (const auto found = known.links.find(where); found != known.links.end()) return found->second;
  REGEN_ASSIGN(const Link link, measure());
  known.links.emplace(where, link);
  return link;
}

std::optional<Link> LinkSource::remembered() {
  const auto text = cache_->read(kLinks, kFile);
  if (!text) return std::nullopt;
  const Links links =
      read_links(*text, kFile, [&](std::string_view problem) { cache_->distrust(problem); });
  const auto found = links.find(device_->name());
  return found == links.end() ? std::nullopt : std::optional(found->second);
}

// What counts from now on: an entry of the file goes before the one measured here.
Link LinkSource::remember(const Link& measured) {
  Link counts = measured;
  if (!cache_->keeps()) return counts;
  cache_->update(kLinks, kFile, [&](const std::optional<std::string>& now) {
    const auto distrust = [&](std::string_view problem) { cache_->distrust(problem); };
    Links links = now ? read_links(*now, kFile, distrust) : Links();
    const auto [entry, is_new] = links.emplace(device_->name(), measured);
    counts = entry->second;
    std::string text = write_links(links);
    if (text.size() > kLinks.most_bytes) text = write_links({{device_->name(), counts}});
    return is_new ? std::optional(std::move(text)) : std::nullopt;
  });
  return counts;
}

Result<Link> LinkSource::measure() {
  if (const auto known = remembered()) return *known;
  const Progress progress({.stage = "measure", .subject = "the speed of copies"});
  Link link;
  REGEN_TRY(in_scope(options_.scope, [&]() -> Status {
    REGEN_ASSIGN(link,
                 options_.measure ? options_.measure(*device_) : execute::measure_link(*device_));
    return {};
  }));
  return remember(link);
}

}  // namespace regen::session
