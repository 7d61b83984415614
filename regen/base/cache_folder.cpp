#include "regen/base/cache_folder.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "regen/base/folder_lock.h"
#include "regen/base/text.h"

namespace regen {
namespace {

constexpr mode_t kOwnFolder = 0700;
constexpr mode_t kOwnFile = 0600;
// What a process that was killed leaves behind; earlier versions: ".profile-cpu-2.13.0.4711.0.json".
constexpr std::string_view kTemporary = ".regen-";
constexpr std::string_view kEarlierTemporaries[] = {".plan-", ".profile-", ".links."};

bool of_this_user(const struct stat& facts) {
  return facts.st_uid == ::geteuid() || facts.st_uid == 0;
}

std::string owner(const struct stat& facts) {
  return "it belongs to user " + std::to_string(facts.st_uid) + ", expected " +
         std::to_string(::geteuid());
}

// In a folder with the sticky bit others make files, but do not touch ours.
std::string why_unsafe(const struct stat& facts, bool folder) {
  if (!of_this_user(facts)) return owner(facts);
  const bool sticky = folder && (facts.st_mode & S_ISVTX) != 0;
  const bool others_write = (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_write && !sticky) return "others may write to it, expected chmod go-w";
  return "";
}

struct Entry {
  std::string name;
  std::size_t bytes = 0;
  timespec used{};
};

bool is_older(const Entry& a, const Entry& b) {
  return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec
                                        : a.used.tv_nsec < b.used.tv_nsec;
}

std::vector<std::string> names_in(const OpenFile& folder) {
  std::vector<std::string> names;
  const int again = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::fdopendir(again), &::closedir);
  if (!list) {
    ::close(again);
    return names;
  }
  while (const dirent* entry = ::readdir(list.get())) names.emplace_back(entry->d_name);
  return names;
}

bool ends_in_number(std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot + 1 == name.size()) return false;
  const bool digits = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  name.resize(dot);
  return digits;
}

bool is_left_behind(std::string name) {
  if (name.starts_with(kTemporary)) return true;
  const bool earlier = std::ranges::any_of(
      kEarlierTemporaries, [&](std::string_view prefix) { return name.starts_with(prefix); });
  constexpr std::string_view kEnd = ".json";
  if (!earlier || !name.ends_with(kEnd)) return false;
  name.resize(name.size() - kEnd.size());
  return ends_in_number(name) && ends_in_number(name);
}

// Under the lock no other process is writing, so each such file is of a process that has ended.
void remove_left_behind(const OpenFile& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (is_left_behind(name)) ::unlinkat(folder.get(), name.c_str(), 0);
  }
}

void keep_within(const OpenFile& folder, const std::vector<std::string>& names,
                 const CacheKind& kind, const std::string& written) {
  std::vector<Entry> entries;
  std::size_t total = 0;
  for (const std::string& name : names) {
    struct stat facts {};
    if (!name.starts_with(kind.prefix)) continue;
    if (::fstatat(folder.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(facts.st_mode)) continue;
    total += static_cast<std::size_t>(facts.st_size);
    entries.push_back({name, static_cast<std::size_t>(facts.st_size), facts.st_mtim});
  }
  std::ranges::sort(entries, is_older);
  std::size_t files = entries.size();
  for (const Entry& entry : entries) {
    if (files <= kind.most_files && total <= kind.most_total) return;
    if (entry.name == written) continue;
    if (::unlinkat(folder.get(), entry.name.c_str(), 0) != 0) continue;
    --files;
    total -= entry.bytes;
  }
}

}  // namespace

void CacheFolder::warn(std::string_view problem, std::string_view instead) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(warned_, true)) return;
  warning_ =
      "cache " + in_quotes(path_) + ": " + std::string(problem) + "; " + std::string(instead);
}

void CacheFolder::warn_not_kept(const CacheKind& kind, std::string_view problem) {
  warn(problem, "the " + std::string(kind.what) + " is not kept");
}

void CacheFolder::distrust(std::string_view problem) {
  warn(problem, "it is not used");
}

std::optional<std::string> CacheFolder::take_warning() {
  const std::lock_guard lock(mutex_);
  return std::exchange(warning_, std::nullopt);
}

OpenFile CacheFolder::open_existing(bool create) {
  constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  OpenFile folder(::open(path_.c_str(), kFolder));
  if (folder || errno != ENOENT || !create) return folder;
  std::error_code problem;
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, problem);
  if (::mkdir(path_.c_str(), kOwnFolder) != 0 && errno != EEXIST) return folder;
  return OpenFile(::open(path_.c_str(), kFolder));
}

// The folder itself is held open, so that what was checked is what is used. None, without a warning,
// where it cannot be opened: the error is in errno.
OpenFile CacheFolder::open(bool create) {
  if (!keeps()) return {};
  OpenFile folder = open_existing(create);
  if (!folder) return folder;
  struct stat facts {};
  const std::string unsafe =
      ::fstat(folder.get(), &facts) != 0 ? std::strerror(errno) : why_unsafe(facts, true);
  if (unsafe.empty()) return folder;
  warn(unsafe, "it is not used");
  errno = EPERM;
  return {};
}

std::optional<std::string> CacheFolder::read_in(const OpenFile& folder, const CacheKind& kind,
                                                const std::string& name) {
  // Not to be held up by a pipe, nor led elsewhere by a link.
  constexpr int kPlain = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const OpenFile file(::openat(folder.get(), name.c_str(), kPlain));
  if (!file) {
    if (errno != ENOENT) distrust(name + ": " + std::strerror(errno));
    return std::nullopt;
  }
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) {
    distrust(name + ": " + std::strerror(errno));
    return std::nullopt;
  }
  const std::string unsafe =
      S_ISREG(facts.st_mode) ? why_unsafe(facts, false) : "it is no plain file";
  std::string content;
  const int error = unsafe.empty() ? read_all(file, kind.most_bytes, content) : 0;
  if (!unsafe.empty() || error != 0) {
    distrust(name + ": " + (error != 0 ? std::strerror(error) : unsafe));
    return std::nullopt;
  }
  constexpr timespec kUsedNow[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  ::futimens(file.get(), kUsedNow);  // the least recently used go first; a read-only one may stay
  return content;
}

std::optional<std::string> CacheFolder::read(const CacheKind& kind, const std::string& name) {
  const OpenFile folder = open(false);
  return folder ? read_in(folder, kind, name) : std::nullopt;
}

void CacheFolder::remove(const std::string& name) {
  if (const OpenFile folder = open(false)) ::unlinkat(folder.get(), name.c_str(), 0);
}

void CacheFolder::write_in(const OpenFile& folder, const CacheKind& kind, const std::string& name,
                           std::string_view content) {
  if (content.size() > kind.most_bytes) {
    warn_not_kept(kind, name + ": " + std::to_string(content.size()) + " bytes, expected at most " +
                            std::to_string(kind.most_bytes));
    return;
  }
  const std::string temporary = std::string(kTemporary) + unique_digits();
  const int error = replace_file(folder.get(), temporary, name, content, kOwnFile);
  if (error != 0) warn_not_kept(kind, name + ": " + std::strerror(error));
}

void CacheFolder::update(const CacheKind& kind, const std::string& name, const Change& change) {
  const OpenFile folder = open(true);
  if (!folder) {
    const int error = errno;
    if (change(std::nullopt) && keeps()) warn_not_kept(kind, std::strerror(error));
    return;
  }
  const FolderLock lock(path_);
  const std::optional<std::string> wanted = change(read_in(folder, kind, name));
  if (!wanted) return;
  // Before there is more: a full disk may be full of files that are no longer used.
  if (lock.held()) remove_left_behind(folder, names_in(folder));
  write_in(folder, kind, name, *wanted);
  if (lock.held()) keep_within(folder, names_in(folder), kind, name);
}

}  // namespace regen
