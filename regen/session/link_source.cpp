#include "regen/session/link_source.h"

#include <cmath>
#include <map>
#include <utility>

#include "regen/base/file.h"
#include "regen/base/folder_lock.h"
#include "regen/base/json.h"

namespace regen::session {
namespace {

using Links = std::map<std::string, Link>;

std::optional<Link> read_link(const Json& value) {
  if (!value.is_array() || value.size() != 3) return std::nullopt;
  double rate[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (!value[i].is_number_float()) return std::nullopt;
    rate[i] = value[i].get<double>();
    if (!std::isfinite(rate[i]) || rate[i] <= 0) return std::nullopt;
  }
  return Link{rate[0], rate[1], rate[2]};
}

// A file that cannot be read is as good as none: it is written again.
Links read_links(const std::string& path) {
  Links links;
  const auto text = read_file(path);
  if (!text.ok()) return links;
  const auto document = parse_json(*text, path);
  if (!document.ok() || !document->is_object()) return links;
  for (const auto& [name, value] : document->items()) {
    if (const auto link = read_link(value)) links.emplace(name, *link);
  }
  return links;
}

std::string write_links(const Links& links) {
  Json document = Json::object();
  for (const auto& [name, link] : links) {
    document[name] = Json::array({link.to_host, link.to_device, link.both});
  }
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What counts from now on: an entry of the file goes before the one measured here.
Link store(const std::string& folder, const std::string& path, const std::string& name,
           const Link& measured) {
  const FolderLock lock(folder);
  Links links = read_links(path);
  const auto [entry, is_new] = links.emplace(name, measured);
  // Without the file the next process measures again: no reason to stop this one.
  if (is_new) static_cast<void>(write_file(path, write_links(links)));
  return entry->second;
}

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
    : device_(std::move(device)), options_(std::move(options)) {}

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

Result<Link> LinkSource::measure() {
  const std::string path = options_.folder + "/links.json";
  if (!options_.folder.empty()) {
    const Links links = read_links(path);
    const auto found = links.find(device_->name());
    if (found != links.end()) return found->second;
  }
  Link link;
  REGEN_TRY(in_scope(options_.scope, [&]() -> Status {
    REGEN_ASSIGN(link,
                 options_.measure ? options_.measure(*device_) : execute::measure_link(*device_));
    return {};
  }));
  return options_.folder.empty() ? link : store(options_.folder, path, device_->name(), link);
}

}  // namespace regen::session
