#include "regen/share/daemon/use_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "regen/base/open_file.h"
#include "regen/base/text.h"
#include "regen/share/client/device_use.h"

namespace regen::share {
namespace {

constexpr const char* kHolders = "holders";
constexpr int kTries = 1000;  // of numbers that are taken

Error use_error(const std::string& path, const char* expected) {
  return bad_input("cannot use " + in_quotes(path) + ": " + std::strerror(errno) + ", expected " +
                   expected);
}

// In a folder of another user, that user could put other files in place of ours.
Status make_private_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return use_error(path, "to make it");
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return use_error(path, "a folder of this user");
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid()) {
    return bad_input("cannot use " + in_quotes(path) + ": expected a folder of this user");
  }
  return ::chmod(path.c_str(), 0700) == 0 ? Status() : Status(use_error(path, "permission"));
}

std::optional<UseNumber> number_of(const std::string& name) {
  const auto number = parse_int(name);
  if (!number.ok() || *number < 1) return std::nullopt;
  return *number;
}

}  // namespace

UseFile::UseFile(std::string path, Descriptor file, UseNumber number)
    : path_(std::move(path)), file_(std::move(file)), number_(number) {}

UseFile::UseFile(UseFile&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      file_(std::move(other.file_)),
      share_(std::move(other.share_)),
      number_(std::exchange(other.number_, 0)) {}

UseFile& UseFile::operator=(UseFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(share_, other.share_);
  std::swap(number_, other.number_);
  return *this;
}

UseFile::~UseFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

bool UseFile::locked(std::int64_t byte) const {
  if (!file_.valid()) return false;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  return ::fcntl(file_.number(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool UseFile::uses(std::size_t device) const {
  return locked(static_cast<std::int64_t>(device));
}

bool UseFile::lives() const {
  return locked(kLifeByte);
}

Result<UseFiles> UseFiles::open(const std::string& folder) {
  REGEN_TRY(make_private_folder(folder));
  UseFiles files;
  files.folder_ = folder;
  const std::string holders = folder + "/" + kHolders;
  files.holders_ =
      Descriptor(::open(holders.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!files.holders_.valid()) return use_error(holders, "a file of this user");
  return files;
}

std::string UseFiles::path_of(UseNumber number) const {
  return folder_ + "/" + std::to_string(number);
}

Result<UseFile> UseFiles::make() {
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const UseNumber number = next_++;
    const std::string path = path_of(number);
    Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.valid()) {
      UseFile use(path, std::move(file), number);
      use.share_ = Descriptor::copy_of(use.file_.number());
      if (use.share_.valid()) return use;
    }
    if (errno != EEXIST) {
      return limit_reached("cannot make the file of a job's device use: " +
                           std::string(std::strerror(errno)));
    }
  }
  return limit_reached("cannot make the file of a job's device use in " + in_quotes(folder_) +
                       ": its names are taken, expected few files there");
}

Result<UseFile> UseFiles::former(UseNumber number) const {
  if (number < 1) return UseFile();
  const std::string path = path_of(number);
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (file.valid()) return UseFile(path, std::move(file), number);
  // Without it, it is not known whether that job still uses its device.
  if (errno != ENOENT) return use_error(path, "the file of a job of the former daemon");
  return UseFile();
}

bool UseFiles::held_last(std::size_t device, UseNumber number) const {
  const auto known = last_.find(device);
  return known != last_.end() && known->second == number;
}

Result<UseNumber> UseFiles::last_holder(std::size_t device) {
  if (const auto known = last_.find(device); known != last_.end()) return known->second;
  UseNumber number = 0;
  const auto offset = static_cast<off_t>(device * sizeof number);
  const auto count =
      read_at(holders_.number(), std::as_writable_bytes(std::span(&number, 1)), offset);
  if (count < 0) return use_error(folder_ + "/" + kHolders, "to read it");
  return last_[device] = count == ssize_t{sizeof number} ? number : 0;
}

Status UseFiles::set_last_holder(std::size_t device, UseNumber number) {
  if (!held_last(device, number)) unwritten_.insert(device);
  last_[device] = number;
  return write_down();
}

Status UseFiles::write_down() {
  while (!unwritten_.empty()) {
    const std::size_t device = *unwritten_.begin();
    const UseNumber number = last_.at(device);
    const auto offset = static_cast<off_t>(device * sizeof number);
    if (!write_at(holders_.number(), std::as_bytes(std::span(&number, 1)), offset))
      return use_error(folder_ + "/" + kHolders, "to write it");
    unwritten_.erase(device);
  }
  return {};
}

void UseFiles::remove_all_but(const std::vector<UseNumber>& needed) {
  for (const UseNumber number : needed) next_ = std::max(next_, number + 1);
  std::error_code ignored;
  std::filesystem::directory_iterator entry(folder_, ignored);
  for (; !ignored && entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    const auto number = number_of(entry->path().filename().string());
    if (!number || std::find(needed.begin(), needed.end(), *number) != needed.end()) continue;
    ::unlink(entry->path().c_str());
  }
}

}  // namespace regen::share
