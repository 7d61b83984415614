#include "failing_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace regen {
namespace {

thread_local FailingCalls* active = nullptr;
thread_local bool disk_is_full = false;

bool fails(const char* name) {
  return active != nullptr && active->fails(name);
}

int with_error(int code) {
  errno = code;
  return -1;
}

}  // namespace

FailingCalls::FailingCalls(int failing, How how) : failing_(failing), how_(how) {
  active = this;
  disk_is_full = false;
}

FailingCalls::~FailingCalls() {
  active = nullptr;
}

bool FailingCalls::fails(const char* name) {
  calls_.emplace_back(name);
  const bool now = static_cast<int>(calls_.size()) - 1 == failing_;
  failed_ |= now;
  return now;
}

}  // namespace regen

// What the code under test calls in place of libc's, which has the name __real_NAME.
extern "C" {

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return regen::fails("open") ? regen::with_error(EMFILE) : __real_open(path, flags, mode);
}

int __real_openat(int folder, const char* path, int flags, ...);
int __wrap_openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return regen::fails("openat") ? regen::with_error(EROFS)
                                : __real_openat(folder, path, flags, mode);
}

ssize_t __real_write(int file, const void* data, size_t size);
ssize_t __wrap_write(int file, const void* data, size_t size) {
  using regen::FailingCalls;
  if (regen::active == nullptr) return __real_write(file, data, size);
  if (regen::disk_is_full) return regen::with_error(ENOSPC);
  if (!regen::fails("write")) return __real_write(file, data, size);
  if (regen::active->how() != FailingCalls::How::kShortWrite) return regen::with_error(ENOSPC);
  regen::disk_is_full = true;
  return __real_write(file, data, size / 2);
}

ssize_t __real_read(int file, void* data, size_t size);
ssize_t __wrap_read(int file, void* data, size_t size) {
  return regen::fails("read") ? regen::with_error(EIO) : __real_read(file, data, size);
}

int __real_fsync(int file);
int __wrap_fsync(int file) {
  return regen::fails("fsync") ? regen::with_error(EIO) : __real_fsync(file);
}

// As of a quota: the file is closed all the same.
int __real_close(int file);
int __wrap_close(int file) {
  if (!regen::fails("close")) return __real_close(file);
  __real_close(file);
  return regen::with_error(EDQUOT);
}

int __real_renameat(int from_folder, const char* from, int to_folder, const char* to);
int __wrap_renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return regen::fails("renameat") ? regen::with_error(EACCES)
                                  : __real_renameat(from_folder, from, to_folder, to);
}

int __real_unlinkat(int folder, const char* path, int flags);
int __wrap_unlinkat(int folder, const char* path, int flags) {
  return regen::fails("unlinkat") ? regen::with_error(EACCES)
                                  : __real_unlinkat(folder, path, flags);
}

int __real_mkdir(const char* path, mode_t mode);
int __wrap_mkdir(const char* path, mode_t mode) {
  return regen::fails("mkdir") ? regen::with_error(EACCES) : __real_mkdir(path, mode);
}

int __real_fstat(int file, struct stat* facts);
int __wrap_fstat(int file, struct stat* facts) {
  return regen::fails("fstat") ? regen::with_error(EIO) : __real_fstat(file, facts);
}

int __real_fstatat(int folder, const char* path, struct stat* facts, int flags);
int __wrap_fstatat(int folder, const char* path, struct stat* facts, int flags) {
  return regen::fails("fstatat") ? regen::with_error(EIO)
                                 : __real_fstatat(folder, path, facts, flags);
}

int __real_flock(int file, int operation);
int __wrap_flock(int file, int operation) {
  return regen::fails("flock") ? regen::with_error(ENOLCK) : __real_flock(file, operation);
}

int __real_futimens(int file, const struct timespec times[2]);
int __wrap_futimens(int file, const struct timespec times[2]) {
  return regen::fails("futimens") ? regen::with_error(EROFS) : __real_futimens(file, times);
}

DIR* __real_fdopendir(int file);
DIR* __wrap_fdopendir(int file) {
  if (!regen::fails("fdopendir")) return __real_fdopendir(file);
  errno = ENOMEM;
  return nullptr;
}

}  // extern "C"
