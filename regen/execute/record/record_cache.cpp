#include "regen/execute/record/record_cache.h"

#include <filesystem>

#include "regen/base/file.h"
#include "regen/base/json_fields.h"
#include "regen/execute/program/dtype.h"

namespace regen::execute {
namespace {

constexpr int kVersion = 1;

Json to_json(const std::vector<CallAllocation>& allocations) {
  Json list = Json::array();
  for (const CallAllocation& a : allocations) {
    const bool freed = a.death != CallAllocation::kForever;
    list.push_back({a.bytes, a.birth, freed ? Json(a.death) : Json(nullptr)});
  }
  return list;
}

Json to_json(const std::vector<CallAlternative>& alternatives) {
  Json list = Json::array();
  for (const CallAlternative& a : alternatives) {
    list.push_back(
        {{"cap", a.cap}, {"seconds", a.seconds}, {"allocations", to_json(a.allocations)}});
  }
  return list;
}

Json to_json(const CallRecord& record) {
  Json results = Json::array();
  for (const ResultLayout& r : record.results) {
    results.push_back({{"source", static_cast<int>(r.source)},
                       {"index", r.index},
                       {"dtype", dtype_name(r.dtype)},
                       {"sizes", r.sizes},
                       {"strides", r.strides},
                       {"offset", r.offset}});
  }
  Json json = {{"seconds", record.seconds},
               {"allocations", to_json(record.allocations)},
               {"results", results}};
  if (record.overwritable) json["overwritable"] = *record.overwritable;
  if (record.shorter_seconds) json["shorter_seconds"] = *record.shorter_seconds;
  if (record.alternatives) json["alternatives"] = to_json(*record.alternatives);
  return json;
}

constexpr std::int64_t kMostMoments = std::int64_t{1} << 31;

Result<double> seconds_at(const JsonCursor& object, const char* key) {
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  return field.not_negative();
}

Result<std::int64_t> whole_at(const JsonCursor& object, const char* key, std::int64_t low,
                              std::int64_t high) {
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  return field.whole(low, high);
}

template <typename Item>
Result<std::vector<Item>> whole_numbers(const JsonCursor& object, const char* key) {
  REGEN_ASSIGN(const JsonCursor list, required_field(object, key));
  REGEN_ASSIGN(const std::size_t size, list.array_size());
  std::vector<Item> numbers;
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(const std::int64_t number, list.item(i).whole(0, kMaxBytes));
    numbers.push_back(static_cast<Item>(number));
  }
  return numbers;
}

Result<CallAllocation> read_allocation(const JsonCursor& at) {
  REGEN_ASSIGN(const std::size_t size, at.array_size());
  if (size != 3) return at.error(std::to_string(size) + " numbers found, expected 3");
  CallAllocation allocation;
  REGEN_ASSIGN(allocation.bytes, at.item(0).whole(0, kMaxBytes));
  REGEN_ASSIGN(allocation.birth, at.item(1).whole(0, kMostMoments));
  if (at.item(2).value().is_null()) return allocation;
  REGEN_ASSIGN(allocation.death, at.item(2).whole(allocation.birth + 1, kMostMoments));
  return allocation;
}

Result<std::vector<CallAllocation>> read_allocations(const JsonCursor& object) {
  REGEN_ASSIGN(const JsonCursor list, required_field(object, "allocations"));
  REGEN_ASSIGN(const std::size_t size, list.array_size());
  std::vector<CallAllocation> allocations;
  Bytes sum = 0;
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(const CallAllocation allocation, read_allocation(list.item(i)));
    sum += allocation.bytes;
    if (sum > kMaxBytes) return list.error("more bytes found than any machine has");
    allocations.push_back(allocation);
  }
  return allocations;
}

Result<std::vector<CallAlternative>> read_alternatives(const JsonCursor& object) {
  REGEN_ASSIGN(const JsonCursor list, required_field(object, "alternatives"));
  REGEN_ASSIGN(const std::size_t size, list.array_size());
  std::vector<CallAlternative> alternatives;
  for (std::size_t i = 0; i < size; ++i) {
    const JsonCursor at = list.item(i);
    REGEN_TRY(at.expect_object());
    CallAlternative alternative;
    REGEN_ASSIGN(alternative.cap, whole_at(at, "cap", 0, kMaxBytes));
    REGEN_ASSIGN(alternative.seconds, seconds_at(at, "seconds"));
    REGEN_ASSIGN(alternative.allocations, read_allocations(at));
    alternatives.push_back(std::move(alternative));
  }
  return alternatives;
}

Result<ResultLayout> read_layout(const JsonCursor& at) {
  REGEN_TRY(at.expect_object());
  ResultLayout layout;
  REGEN_ASSIGN(const std::int64_t source,
               whole_at(at, "source", 0, static_cast<int>(ResultSource::kHost)));
  layout.source = static_cast<ResultSource>(source);
  REGEN_ASSIGN(const std::int64_t index, whole_at(at, "index", 0, kMaxBytes));
  layout.index = static_cast<std::size_t>(index);
  std::string name;
  REGEN_TRY(read_text(at, "dtype", name));
  // An undefined result has none.
  const auto dtype = parse_dtype(name);
  if (!dtype.ok() && layout.source != ResultSource::kUndefined) {
    return at.error(dtype.error().message);
  }
  if (dtype.ok()) layout.dtype = *dtype;
  REGEN_ASSIGN(layout.sizes, whole_numbers<std::int64_t>(at, "sizes"));
  REGEN_ASSIGN(layout.strides, whole_numbers<std::int64_t>(at, "strides"));
  if (layout.sizes.size() != layout.strides.size()) {
    return at.error(std::to_string(layout.sizes.size()) + " sizes but " +
                    std::to_string(layout.strides.size()) + " strides found, expected as many");
  }
  REGEN_ASSIGN(layout.offset, whole_at(at, "offset", 0, kMaxBytes));
  return layout;
}

Result<CallRecord> read_record(const JsonCursor& at) {
  REGEN_TRY(at.expect_object());
  CallRecord record;
  REGEN_ASSIGN(record.seconds, seconds_at(at, "seconds"));
  REGEN_ASSIGN(record.allocations, read_allocations(at));
  if (has_field(at, "alternatives")) {
    REGEN_ASSIGN(record.alternatives, read_alternatives(at));
  }
  if (has_field(at, "overwritable")) {
    REGEN_ASSIGN(record.overwritable, whole_numbers<std::size_t>(at, "overwritable"));
  }
  if (has_field(at, "shorter_seconds")) {
    REGEN_ASSIGN(record.shorter_seconds, seconds_at(at, "shorter_seconds"));
  }
  REGEN_ASSIGN(const JsonCursor results, required_field(at, "results"));
  REGEN_ASSIGN(const std::size_t size, results.array_size());
  for (std::size_t i = 0; i < size; ++i) {
    REGEN_ASSIGN(ResultLayout layout, read_layout(results.item(i)));
    record.results.push_back(std::move(layout));
  }
  return record;
}

bool says_more(const CallRecord& record, const CallRecord& other) {
  return (record.alternatives && !other.alternatives) ||
         (record.overwritable && !other.overwritable);
}

}  // namespace

const CallRecord* RecordCache::find(const std::string& key) const {
  const auto found = records_.find(key);
  return found == records_.end() ? nullptr : &found->second;
}

void RecordCache::insert(const std::string& key, CallRecord record) {
  records_.insert_or_assign(key, std::move(record));
  own_.insert(key);
  changed_ = true;
}

Result<RecordCache> RecordCache::parse(std::string_view text, std::string_view source,
                                       const std::string& device, const OnProblem& on_problem) {
  RecordCache cache;
  REGEN_ASSIGN(const Json document, parse_json(text, source));
  const JsonCursor root(document, source);
  REGEN_TRY(check_format(root, "regen-profile", kVersion));
  REGEN_ASSIGN(const JsonCursor name, required_field(root, "device"));
  if (name.value() != device) {
    return bad_input(std::string(source) + ": device: " + excerpt(name.value()) +
                     " found, expected \"" + device + "\"");
  }
  REGEN_ASSIGN(const JsonCursor calls, required_field(root, "calls"));
  REGEN_TRY(calls.expect_object());
  for (auto it = calls.value().begin(); it != calls.value().end(); ++it) {
    auto record = read_record(calls.member(it.key(), *it));
    if (record.ok()) {
      cache.records_.emplace(it.key(), std::move(record).value());
    } else if (on_problem) {
      on_problem(record.error());
      cache.changed_ = true;  // the file is to be written without it
    } else {
      return record.error();
    }
  }
  return cache;
}

std::string RecordCache::text(const std::string& device) const {
  Json calls = Json::object();
  for (const auto& [key, record] : records_) calls.push_back({key, to_json(record)});
  const Json document = {
      {"format", "regen-profile"}, {"version", kVersion}, {"device", device}, {"calls", calls}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RecordCache RecordCache::load(CacheFolder& folder, const CacheKind& kind, const std::string& name,
                              const std::string& device) {
  const auto text = folder.read(kind, name);
  if (!text) return {};
  const auto distrust = [&](const Error& error) { folder.distrust(error.message); };
  auto cache = parse(*text, name, device, distrust);
  if (cache.ok()) {
    cache->changed_ = false;
    return std::move(cache).value();
  }
  distrust(cache.error());
  return {};
}

bool RecordCache::save(CacheFolder& folder, const CacheKind& kind, const std::string& name,
                       const std::string& device) {
  bool others = false;
  folder.update(kind, name, [&](const std::optional<std::string>& now) {
    const auto distrust = [&](const Error& error) { folder.distrust(error.message); };
    Result<RecordCache> file = now ? parse(*now, name, device, distrust) : RecordCache();
    if (!file.ok()) distrust(file.error());
    others = merge(file.ok() ? std::move(file).value() : RecordCache());
    if (!std::exchange(changed_, false)) return std::optional<std::string>();
    std::string content = text(device);
    if (content.size() > kind.most_bytes) content = used().text(device);
    return std::optional(std::move(content));
  });
  return others;
}

// Into what a file has; that is what counts from now on.
bool RecordCache::merge(RecordCache file) {
  bool others = false;
  for (const auto& [key, record] : records_) {
    const CallRecord* known = file.find(key);
    if (known == nullptr || says_more(record, *known) || rejected_.contains(key)) {
      const bool own = own_.contains(key);
      file.insert(key, record);
      if (!own) file.own_.erase(key);
    } else if (*known == record) {
      if (own_.contains(key)) file.own_.insert(key);
    } else {
      others = true;
    }
  }
  records_ = std::move(file.records_);
  own_ = std::move(file.own_);
  rejected_.clear();
  changed_ = file.changed_;
  return others;
}

RecordCache RecordCache::used() const {
  RecordCache cache;
  for (const std::set<std::string>* keys : {&own_, &used_}) {
    for (const std::string& key : *keys) {
      if (const CallRecord* record = find(key)) cache.records_.emplace(key, *record);
    }
  }
  return cache;
}

Result<RecordCache> RecordCache::load(const std::string& path, const std::string& device) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return RecordCache();
  REGEN_ASSIGN(const std::string text, read_file(path));
  return parse(text, path, device);
}

Result<bool> RecordCache::save(const std::string& path, const std::string& device) {
  const auto before = load(path, device);
  if (!before.ok()) return before.error();
  NamedCache file(path);
  const bool others = save(file.folder, file.kind, file.name, device);
  if (const auto warning = file.folder.take_warning()) return bad_input(*warning);
  return others;
}

NamedCache::NamedCache(const std::string& path)
    : folder([&] {
        const std::string parent = std::filesystem::path(path).parent_path().string();
        return parent.empty() ? "." : parent;
      }()),
      name(std::filesystem::path(path).filename().string()),
      kind{kProfiles.what, name, kProfiles.most_bytes, 1, kProfiles.most_bytes} {}

}  // namespace regen::execute
