#include "failing_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <system_error>

extern "C" int __real_fstat(int file, struct stat* facts);

namespace regen {
namespace {

using Kind = Failure::Kind;

std::atomic<FailingCalls*> installed{nullptr};

std::vector<Failure> errors(std::initializer_list<int> codes) {
  std::vector<Failure> all;
  for (const int code : codes) all.push_back({Kind::kError, code});
  return all;
}

std::vector<Failure> operator+(std::vector<Failure> all, Kind kind) {
  all.push_back({kind, 0});
  return all;
}

const std::map<std::string_view, std::vector<Failure>>& table() {
  static const std::map<std::string_view, std::vector<Failure>> all{
      {"accept", errors({EMFILE, EINTR, ENOMEM})},
      {"bind", errors({EADDRINUSE, EACCES, ENOSPC})},
      {"chmod", errors({EPERM})},
      {"close", errors({EDQUOT, EINTR})},
      {"connect", errors({ECONNREFUSED, EINTR, EACCES})},
      {"epoll_create1", errors({EMFILE})},
      {"epoll_ctl", errors({ENOSPC, ENOMEM})},
      {"eventfd", errors({EMFILE})},
      {"fcntl(copy)", errors({EMFILE})},
      {"fcntl(lock)", errors({ENOLCK, EINTR, EAGAIN})},
      {"fcntl(seal)", errors({EBUSY})},
      {"fcntl(wait for lock)", errors({ENOLCK, EINTR})},
      {"fdatasync", errors({EIO, ENOSPC})},
      {"fdopendir", errors({ENOMEM})},
      {"flock", errors({ENOLCK, EINTR})},
      {"fopen", errors({EMFILE, EACCES})},
      {"fread", errors({EIO})},
      {"fstat", errors({EIO})},
      {"fstatat", errors({EIO})},
      {"fsync", errors({EIO, ENOSPC})},
      {"ftruncate", errors({ENOSPC, EINTR})},
      {"futex", errors({EINTR, EAGAIN}) + Kind::kReturned},
      {"futimens", errors({EROFS})},
      {"getrandom", errors({ENOSYS, EINTR})},
      {"getrlimit", errors({EPERM})},
      {"getsockname", errors({ENOBUFS})},
      {"getsockopt(groups)", errors({ERANGE})},
      {"getsockopt(pidfd)", errors({EMFILE, ENOPROTOOPT})},
      {"listen", errors({EADDRINUSE})},
      {"lstat", errors({EACCES})},
      {"madvise", errors({EINVAL})},
      {"memfd_create", errors({EMFILE, ENOMEM})},
      {"mkdir", errors({EACCES, ENOSPC})},
      {"mmap", errors({ENOMEM})},
      {"open", errors({EMFILE, ENOSPC, EACCES})},
      {"openat", errors({EROFS, EMFILE, ENOSPC})},
      {"pidfd_open", errors({EMFILE, ENOMEM})},
      {"pidfd_send_signal", errors({EPERM, ESRCH})},
      {"pipe", errors({EMFILE})},
      {"poll", errors({EINTR, ENOMEM})},
      {"pread", errors({EIO, EINTR}) + Kind::kShort},
      {"pwrite", errors({ENOSPC, EINTR, EIO}) + Kind::kShort + Kind::kFull},
      {"read", errors({EIO, EINTR}) + Kind::kShort},
      {"recv", errors({ECONNRESET, EINTR}) + Kind::kShort},
      {"recvmsg", errors({ECONNRESET, EINTR, ENOMEM})},
      {"recvmsg(now)", errors({ECONNRESET, EINTR, EAGAIN})},
      {"recvmsg(stream)", errors({ECONNRESET, EINTR, ENOMEM}) + Kind::kShort + Kind::kDropped},
      {"rename", errors({ENOSPC, EACCES})},
      {"renameat", errors({EACCES, ENOSPC})},
      {"sendmsg", errors({EPIPE, EINTR, ENOBUFS})},
      {"sendmsg(now)", errors({EPIPE, EINTR, ENOBUFS, EAGAIN})},
      {"sendmsg(stream)", errors({EPIPE, EINTR, ENOBUFS}) + Kind::kShort},
      {"sendmsg(stream, now)", errors({EPIPE, EINTR, ENOBUFS, EAGAIN}) + Kind::kShort},
      {"setrlimit", errors({EPERM})},
      {"setsockopt", errors({ENOPROTOOPT})},
      {"shutdown", errors({ENOTCONN})},
      {"socket", errors({EMFILE, ENOBUFS})},
      {"stat", errors({EACCES})},
      {"thread", errors({EAGAIN})},
      {"timerfd_create", errors({EMFILE})},
      {"unlink", errors({EACCES})},
      {"unlinkat", errors({EACCES})},
      {"write", errors({ENOSPC, EINTR, EIO}) + Kind::kFull + Kind::kShort},
  };
  return all;
}

int with_error(int code) {
  errno = code;
  return -1;
}

// Whether the call fails with an error, which is in errno then.
bool fails(const char* name) {
  const Failure* failure = FailingCalls::next(name);
  if (failure == nullptr) return false;
  errno = failure->error;
  return true;
}

// Few; but a counter of a descriptor of events comes whole.
std::size_t some_of(std::size_t size) {
  return size == 8 ? size : std::min<std::size_t>((size + 1) / 2, 9);
}

// What the kernel says of pipes and counters of events cannot fail as files do.
bool is_file(int file) {
  struct stat facts {};
  return __real_fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
}

// Of sockets and processes. Asio also adds its own counter, timer and pipe, when a loop is made, and does
// not look at what comes of it.
bool is_clients(int file) {
  char name[64];
  char target[64] = {};
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  const ssize_t size = ::readlink(name, target, sizeof target - 1);
  const std::string_view found(target, size > 0 ? static_cast<std::size_t>(size) : 0);
  return found.starts_with("socket:") || found.find("pidfd") != std::string_view::npos;
}

bool is_short(const Failure* failure) {
  return failure != nullptr && (failure->kind == Kind::kShort || failure->kind == Kind::kFull);
}

}  // namespace

const std::vector<Failure>& failures_of(std::string_view call) {
  return table().at(call);
}

std::string to_string(const Failure& failure) {
  switch (failure.kind) {
    case Kind::kError:
      return ::strerrorname_np(failure.error);
    case Kind::kShort:
      return "short";
    case Kind::kFull:
      return "short, then full";
    case Kind::kDropped:
      return "without descriptors";
    case Kind::kReturned:
      return "woken for no reason";
  }
  return "";
}

FailingCalls::FailingCalls(int failing, std::size_t way, Scope scope)
    : failing_(failing), way_(way), scope_(scope), process_(::getpid()), thread_(::gettid()) {
  installed = this;
}

FailingCalls::~FailingCalls() {
  installed = nullptr;
}

std::vector<std::string> FailingCalls::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

FailingCalls* FailingCalls::active() {
  FailingCalls* now = installed;
  if (now == nullptr || now->process_ != ::getpid()) return nullptr;
  return now->scope_ == Scope::kAllThreads || now->thread_ == ::gettid() ? now : nullptr;
}

const Failure* FailingCalls::next(const char* name) {
  FailingCalls* now = active();
  return now == nullptr ? nullptr : now->count(name);
}

bool FailingCalls::disk_is_full() {
  const FailingCalls* now = active();
  return now != nullptr && now->disk_is_full_;
}

const Failure* FailingCalls::count(const char* name) {
  const std::lock_guard lock(mutex_);
  calls_.emplace_back(name);
  if (static_cast<int>(calls_.size()) - 1 != failing_) return nullptr;
  const std::vector<Failure>& ways = failures_of(name);
  if (way_ >= ways.size()) return nullptr;  // another call than in the run that was counted
  const Failure& failure = ways[way_];
  failed_ = std::string(name) + ": " + to_string(failure);
  disk_is_full_ = failure.kind == Kind::kFull;
  return &failure;
}

}  // namespace regen

// What the code under test calls in place of libc's, which has the name __real_NAME.
extern "C" {

using regen::FailingCalls;
using regen::Failure;

// --- Files

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return regen::fails("open") ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int folder, const char* path, int flags, ...);
int __wrap_openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return regen::fails("openat") ? -1 : __real_openat(folder, path, flags, mode);
}

FILE* __real_fopen(const char* path, const char* mode);
FILE* __wrap_fopen(const char* path, const char* mode) {
  return regen::fails("fopen") ? nullptr : __real_fopen(path, mode);
}

size_t __real_fread(void* data, size_t size, size_t count, FILE* file);
size_t __wrap_fread(void* data, size_t size, size_t count, FILE* file) {
  return regen::fails("fread") ? 0 : __real_fread(data, size, count, file);
}

ssize_t __real_write(int file, const void* data, size_t size);
ssize_t __wrap_write(int file, const void* data, size_t size) {
  if (!regen::is_file(file)) return __real_write(file, data, size);
  if (FailingCalls::disk_is_full()) return regen::with_error(ENOSPC);
  const Failure* failure = FailingCalls::next("write");
  if (regen::is_short(failure)) return __real_write(file, data, regen::some_of(size));
  return failure != nullptr ? regen::with_error(failure->error) : __real_write(file, data, size);
}

ssize_t __real_pwrite(int file, const void* data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int file, const void* data, size_t size, off_t offset) {
  if (FailingCalls::disk_is_full()) return regen::with_error(ENOSPC);
  const Failure* failure = FailingCalls::next("pwrite");
  // Half of a number, too: the kernel promises nothing about files.
  if (regen::is_short(failure)) return __real_pwrite(file, data, (size + 1) / 2, offset);
  return failure != nullptr ? regen::with_error(failure->error)
                            : __real_pwrite(file, data, size, offset);
}

ssize_t __real_read(int file, void* data, size_t size);
ssize_t __wrap_read(int file, void* data, size_t size) {
  const Failure* failure = regen::is_file(file) ? FailingCalls::next("read") : nullptr;
  if (regen::is_short(failure)) return __real_read(file, data, regen::some_of(size));
  return failure != nullptr ? regen::with_error(failure->error) : __real_read(file, data, size);
}

ssize_t __real_pread(int file, void* data, size_t size, off_t offset);
ssize_t __wrap_pread(int file, void* data, size_t size, off_t offset) {
  const Failure* failure = FailingCalls::next("pread");
  if (regen::is_short(failure)) return __real_pread(file, data, (size + 1) / 2, offset);
  return failure != nullptr ? regen::with_error(failure->error)
                            : __real_pread(file, data, size, offset);
}

int __real_fsync(int file);
int __wrap_fsync(int file) {
  return regen::fails("fsync") ? -1 : __real_fsync(file);
}

int __real_fdatasync(int file);
int __wrap_fdatasync(int file) {
  return regen::fails("fdatasync") ? -1 : __real_fdatasync(file);
}

int __real_ftruncate(int file, off_t size);
int __wrap_ftruncate(int file, off_t size) {
  return regen::fails("ftruncate") ? -1 : __real_ftruncate(file, size);
}

// The file is closed all the same.
int __real_close(int file);
int __wrap_close(int file) {
  const Failure* failure = FailingCalls::next("close");
  if (failure == nullptr) return __real_close(file);
  __real_close(file);
  return regen::with_error(failure->error);
}

int __real_rename(const char* from, const char* to);
int __wrap_rename(const char* from, const char* to) {
  return regen::fails("rename") ? -1 : __real_rename(from, to);
}

int __real_renameat(int from_folder, const char* from, int to_folder, const char* to);
int __wrap_renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return regen::fails("renameat") ? -1 : __real_renameat(from_folder, from, to_folder, to);
}

int __real_unlink(const char* path);
int __wrap_unlink(const char* path) {
  return regen::fails("unlink") ? -1 : __real_unlink(path);
}

int __real_unlinkat(int folder, const char* path, int flags);
int __wrap_unlinkat(int folder, const char* path, int flags) {
  return regen::fails("unlinkat") ? -1 : __real_unlinkat(folder, path, flags);
}

int __real_mkdir(const char* path, mode_t mode);
int __wrap_mkdir(const char* path, mode_t mode) {
  return regen::fails("mkdir") ? -1 : __real_mkdir(path, mode);
}

int __real_chmod(const char* path, mode_t mode);
int __wrap_chmod(const char* path, mode_t mode) {
  return regen::fails("chmod") ? -1 : __real_chmod(path, mode);
}

int __real_stat(const char* path, struct stat* facts);
int __wrap_stat(const char* path, struct stat* facts) {
  return regen::fails("stat") ? -1 : __real_stat(path, facts);
}

int __real_lstat(const char* path, struct stat* facts);
int __wrap_lstat(const char* path, struct stat* facts) {
  return regen::fails("lstat") ? -1 : __real_lstat(path, facts);
}

int __wrap_fstat(int file, struct stat* facts) {
  return regen::fails("fstat") ? -1 : __real_fstat(file, facts);
}

int __real_fstatat(int folder, const char* path, struct stat* facts, int flags);
int __wrap_fstatat(int folder, const char* path, struct stat* facts, int flags) {
  return regen::fails("fstatat") ? -1 : __real_fstatat(folder, path, facts, flags);
}

int __real_flock(int file, int operation);
int __wrap_flock(int file, int operation) {
  return regen::fails("flock") ? -1 : __real_flock(file, operation);
}

int __real_futimens(int file, const struct timespec times[2]);
int __wrap_futimens(int file, const struct timespec times[2]) {
  return regen::fails("futimens") ? -1 : __real_futimens(file, times);
}

DIR* __real_fdopendir(int file);
DIR* __wrap_fdopendir(int file) {
  return regen::fails("fdopendir") ? nullptr : __real_fdopendir(file);
}

int __real_fcntl(int file, int command, ...);
int __wrap_fcntl(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  const bool locks = (command == F_SETLK || command == F_SETLKW) &&
                     static_cast<const struct flock*>(argument)->l_type != F_UNLCK;
  const char* name = command == F_DUPFD_CLOEXEC ? "fcntl(copy)"
                     : command == F_ADD_SEALS   ? "fcntl(seal)"
                     : !locks                   ? nullptr
                     : command == F_SETLKW      ? "fcntl(wait for lock)"
                                                : "fcntl(lock)";
  // A copy of nothing fails anyhow.
  if (name != nullptr && file >= 0 && regen::fails(name)) return -1;
  return __real_fcntl(file, command, argument);
}

// --- Sockets

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol) {
  return regen::fails("socket") ? -1 : __real_socket(domain, type, protocol);
}

int __real_bind(int socket, const struct sockaddr* address, socklen_t size);
int __wrap_bind(int socket, const struct sockaddr* address, socklen_t size) {
  return regen::fails("bind") ? -1 : __real_bind(socket, address, size);
}

int __real_listen(int socket, int backlog);
int __wrap_listen(int socket, int backlog) {
  return regen::fails("listen") ? -1 : __real_listen(socket, backlog);
}

int __real_connect(int socket, const struct sockaddr* address, socklen_t size);
int __wrap_connect(int socket, const struct sockaddr* address, socklen_t size) {
  return regen::fails("connect") ? -1 : __real_connect(socket, address, size);
}

int __real_accept(int socket, struct sockaddr* address, socklen_t* size);
int __wrap_accept(int socket, struct sockaddr* address, socklen_t* size) {
  return regen::fails("accept") ? -1 : __real_accept(socket, address, size);
}

int __real_accept4(int socket, struct sockaddr* address, socklen_t* size, int flags);
int __wrap_accept4(int socket, struct sockaddr* address, socklen_t* size, int flags) {
  return regen::fails("accept") ? -1 : __real_accept4(socket, address, size, flags);
}

int __real_getsockopt(int socket, int level, int name, void* value, socklen_t* size);
int __wrap_getsockopt(int socket, int level, int name, void* value, socklen_t* size) {
  constexpr int kPeerGroups = 59;
  constexpr int kPeerPidfd = 77;
  if (level == SOL_SOCKET && name == kPeerPidfd && regen::fails("getsockopt(pidfd)")) return -1;
  if (level == SOL_SOCKET && name == kPeerGroups && regen::fails("getsockopt(groups)")) return -1;
  return __real_getsockopt(socket, level, name, value, size);
}

int __real_getsockname(int socket, struct sockaddr* address, socklen_t* size);
int __wrap_getsockname(int socket, struct sockaddr* address, socklen_t* size) {
  return regen::fails("getsockname") ? -1 : __real_getsockname(socket, address, size);
}

int __real_setsockopt(int socket, int level, int name, const void* value, socklen_t size);
int __wrap_setsockopt(int socket, int level, int name, const void* value, socklen_t size) {
  return regen::fails("setsockopt") ? -1 : __real_setsockopt(socket, level, name, value, size);
}

int __real_shutdown(int socket, int how);
int __wrap_shutdown(int socket, int how) {
  return regen::fails("shutdown") ? -1 : __real_shutdown(socket, how);
}

static bool is_stream(int socket) {
  int type = 0;
  socklen_t size = sizeof type;
  return __real_getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

// The message with at most some of its bytes.
static msghdr shortened(const msghdr* head, iovec& part) {
  part = head->msg_iov[0];
  part.iov_len = regen::some_of(part.iov_len);
  msghdr less = *head;
  less.msg_iov = &part;
  less.msg_iovlen = 1;
  return less;
}

ssize_t __real_sendmsg(int socket, const msghdr* head, int flags);
ssize_t __wrap_sendmsg(int socket, const msghdr* head, int flags) {
  const bool now = (flags & MSG_DONTWAIT) != 0;
  const Failure* failure =
      FailingCalls::next(is_stream(socket) ? now ? "sendmsg(stream, now)" : "sendmsg(stream)"
                         : now             ? "sendmsg(now)"
                                           : "sendmsg");
  if (failure == nullptr) return __real_sendmsg(socket, head, flags);
  if (!regen::is_short(failure)) return regen::with_error(failure->error);
  iovec part{};
  const msghdr less = shortened(head, part);
  return __real_sendmsg(socket, &less, flags);
}

// As the kernel does when it has no number left for a descriptor.
static void drop_descriptors(msghdr* head) {
  for (cmsghdr* part = CMSG_FIRSTHDR(head); part != nullptr; part = CMSG_NXTHDR(head, part)) {
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof number, sizeof number);
      __real_close(number);
    }
  }
  head->msg_controllen = 0;
  head->msg_flags |= MSG_CTRUNC;
}

ssize_t __real_recvmsg(int socket, msghdr* head, int flags);
ssize_t __wrap_recvmsg(int socket, msghdr* head, int flags) {
  // Asio asks by itself whether there is something.
  const bool now = (flags & MSG_DONTWAIT) != 0;
  const Failure* failure = FailingCalls::next(is_stream(socket) ? "recvmsg(stream)"
                                              : now             ? "recvmsg(now)"
                                                                : "recvmsg");
  if (failure == nullptr) return __real_recvmsg(socket, head, flags);
  if (failure->kind == Failure::Kind::kError) return regen::with_error(failure->error);
  if (failure->kind == Failure::Kind::kDropped) {
    const ssize_t count = __real_recvmsg(socket, head, flags);
    if (count > 0 && head->msg_controllen > 0) drop_descriptors(head);
    return count;
  }
  iovec part{};
  msghdr less = shortened(head, part);
  const ssize_t count = __real_recvmsg(socket, &less, flags);
  head->msg_controllen = less.msg_controllen;
  head->msg_flags = less.msg_flags;
  return count;
}

ssize_t __real_recv(int socket, void* data, size_t size, int flags);
ssize_t __wrap_recv(int socket, void* data, size_t size, int flags) {
  const Failure* failure = FailingCalls::next("recv");
  if (regen::is_short(failure)) return __real_recv(socket, data, regen::some_of(size), flags);
  return failure != nullptr ? regen::with_error(failure->error)
                            : __real_recv(socket, data, size, flags);
}

// --- Events

int __real_poll(pollfd* asked, nfds_t count, int time);
int __wrap_poll(pollfd* asked, nfds_t count, int time) {
  return regen::fails("poll") ? -1 : __real_poll(asked, count, time);
}

int __real_pipe(int ends[2]);
int __wrap_pipe(int ends[2]) {
  return regen::fails("pipe") ? -1 : __real_pipe(ends);
}

int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags) {
  return regen::fails("epoll_create1") ? -1 : __real_epoll_create1(flags);
}

int __real_epoll_ctl(int loop, int operation, int file, epoll_event* event);
int __wrap_epoll_ctl(int loop, int operation, int file, epoll_event* event) {
  if (operation == EPOLL_CTL_ADD && regen::is_clients(file) && regen::fails("epoll_ctl")) return -1;
  return __real_epoll_ctl(loop, operation, file, event);
}

int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags) {
  return regen::fails("eventfd") ? -1 : __real_eventfd(value, flags);
}

int __real_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags) {
  return regen::fails("timerfd_create") ? -1 : __real_timerfd_create(clock, flags);
}

// --- Memory, processes, threads

int __real_memfd_create(const char* name, unsigned flags);
int __wrap_memfd_create(const char* name, unsigned flags) {
  return regen::fails("memfd_create") ? -1 : __real_memfd_create(name, flags);
}

void* __real_mmap(void* where, size_t size, int access, int flags, int file, off_t offset);
void* __wrap_mmap(void* where, size_t size, int access, int flags, int file, off_t offset) {
  if (regen::fails("mmap")) return reinterpret_cast<void*>(-1);  // MAP_FAILED
  return __real_mmap(where, size, access, flags, file, offset);
}

int __real_madvise(void* where, size_t size, int advice);
int __wrap_madvise(void* where, size_t size, int advice) {
  return regen::fails("madvise") ? -1 : __real_madvise(where, size, advice);
}

ssize_t __real_getrandom(void* data, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void* data, size_t size, unsigned flags) {
  return regen::fails("getrandom") ? -1 : __real_getrandom(data, size, flags);
}

int __real_getrlimit(__rlimit_resource_t which, rlimit* limit);
int __wrap_getrlimit(__rlimit_resource_t which, rlimit* limit) {
  return regen::fails("getrlimit") ? -1 : __real_getrlimit(which, limit);
}

int __real_setrlimit(__rlimit_resource_t which, const rlimit* limit);
int __wrap_setrlimit(__rlimit_resource_t which, const rlimit* limit) {
  return regen::fails("setrlimit") ? -1 : __real_setrlimit(which, limit);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long of[6];
  for (long& argument : of) argument = va_arg(rest, long);
  va_end(rest);
  const bool sleeps = number == SYS_futex && (of[1] & FUTEX_CMD_MASK) == FUTEX_WAIT;
  const char* name = sleeps                            ? "futex"
                     : number == SYS_pidfd_open        ? "pidfd_open"
                     : number == SYS_pidfd_send_signal ? "pidfd_send_signal"
                                                       : nullptr;
  if (name != nullptr) {
    const Failure* failure = FailingCalls::next(name);
    if (failure != nullptr && failure->kind == Failure::Kind::kReturned) return 0;
    if (failure != nullptr) return regen::with_error(failure->error);
  }
  return __real_syscall(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}

// std::thread's way to start one.
void __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    void* self, void* state, void (*depends)());
void __wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    void* self, void* state, void (*depends)()) {
  if (regen::fails("thread")) throw std::system_error(errno, std::generic_category());
  __real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
      self, state, depends);
}

}  // extern "C"
