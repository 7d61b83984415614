#include "regen/share/protocol/page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <utility>

namespace regen::share {
namespace {

constexpr std::size_t kPageBytes = 4096;
static_assert(kCalm == FUTEX_WAITERS, "or the kernel would wake no client of a killed daemon");

Error page_error(const char* what) {
  return limit_reached(std::string("cannot make the page of a client: ") + what + ": " +
                       std::strerror(errno));
}

// What the kernel walks when the thread ends. It replaces that of the C library, which serves
// robust mutexes; the daemon has none.
thread_local robust_list_head list_head{};
// The thread that owns the list: a forked child inherits the memory, but not the kernel's list.
thread_local pid_t list_owner = 0;

// Sleepers are in another process: not the private kind.
void wake_sleepers(const std::atomic<std::uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Status install_robust_list() {
  if (list_owner == ::gettid()) return {};
  list_head.futex_offset = kPageBytes;
  list_head.list.next = &list_head.list;
  if (::syscall(SYS_set_robust_list, &list_head, sizeof list_head) != 0) {
    return page_error("set_robust_list");
  }
  list_owner = ::gettid();
  return {};
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Descriptor Descriptor::copy_of(int number) {
  return Descriptor(::fcntl(number, F_DUPFD_CLOEXEC, 0));
}

int Descriptor::release() {
  return std::exchange(number_, -1);
}

// Two pages side by side: the link stays private, and the kernel finds the word at a fixed
// distance.
struct ServerPage::Memory {
  robust_list link;
  Memory* previous;  // in the list; null for the first
  pid_t owner;       // the thread that made it
  // NOLINTNEXTLINE(bugprone-sizeof-expression): of the pointer, which lies here
  char unused[kPageBytes - sizeof(robust_list) - sizeof(Memory*) - sizeof(pid_t)];
  PageContent content;

  // At every instant the list can be walked: the thread may be killed at any instruction.
  void enter_list() {
    link.next = list_head.list.next;
    if (Memory* next = memory_at(link.next)) next->previous = this;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    list_head.list.next = &link;
  }
  void leave_list() {
    (previous == nullptr ? list_head.list.next : previous->link.next) = link.next;
    if (Memory* next = memory_at(link.next)) next->previous = previous;
  }
  static Memory* memory_at(robust_list* entry) {
    return entry == &list_head.list ? nullptr : reinterpret_cast<Memory*>(entry);
  }
};

void ServerPage::Unmap::operator()(Memory* memory) const {
  if (memory->owner == ::gettid()) {  // a forked child has no say
    const std::uint32_t before = memory->content.go.exchange(0, std::memory_order_acq_rel);
    if ((before & kCalm) != 0) wake_sleepers(&memory->content.go);
    memory->leave_list();
  }
  ::munmap(memory, 2 * kPageBytes);
}

Result<ServerPage> ServerPage::create() {
  static_assert(offsetof(Memory, content) + offsetof(PageContent, go) == kPageBytes);
  REGEN_TRY(install_robust_list());
  ServerPage page;
  page.descriptor_ = Descriptor(::memfd_create("regen-share", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int file = page.descriptor_.number();
  if (file < 0 || ::ftruncate(file, kPageBytes) != 0) return page_error("memfd_create");
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  void* both = ::mmap(nullptr, 2 * kPageBytes, kAccess, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (both == MAP_FAILED) return page_error("mmap");
  void* shared = static_cast<char*>(both) + kPageBytes;
  if (::mmap(shared, kPageBytes, kAccess, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    const Error error = page_error("mmap");
    ::munmap(both, 2 * kPageBytes);
    return error;
  }
  page.memory_.reset(new (both) Memory);
  page.memory_->previous = nullptr;
  page.memory_->owner = ::gettid();
  page.memory_->enter_list();
  // From now on it cannot be mapped for writing; this mapping stays as it is.
  constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
  if (::fcntl(file, F_ADD_SEALS, kSeals) != 0) return page_error("F_ADD_SEALS");
  return page;
}

std::uint32_t ServerPage::go_value() const {
  return static_cast<std::uint32_t>(memory_->owner);
}

void ServerPage::set_go(bool go) {
  put(go ? go_value() | kCalm : 0);
}

void ServerPage::set_wanted(bool wanted) {
  if (memory_->content.go.load(std::memory_order_relaxed) == 0) return;
  put(wanted ? go_value() : go_value() | kCalm);
}

void ServerPage::put(std::uint32_t value) {
  const std::uint32_t before = memory_->content.go.exchange(value, std::memory_order_acq_rel);
  if ((before & kCalm) != 0 && (value & kCalm) == 0) wake_sleepers(&memory_->content.go);
}

void ServerPage::set_outranks_all(bool outranks) {
  memory_->content.outranks_all.store(outranks ? 1 : 0, std::memory_order_relaxed);
}

void ServerPage::set_limit(const ByteLimit& limit) {
  memory_->content.limit.store(limit.pack(), std::memory_order_release);
}

const PageContent ClientPage::kStop{};

void ClientPage::Sleep::while_calm() const {
  ::syscall(SYS_futex, word_, FUTEX_WAIT, calm_, nullptr, nullptr, 0);
}

void ClientPage::Sleep::wake() const {
  wake_sleepers(word_);
}

void ClientPage::Unmap::operator()(const PageContent* content) const {
  ::munmap(const_cast<PageContent*>(content), kPageBytes);
}

Result<ClientPage> ClientPage::map(const Descriptor& descriptor, std::uint32_t go_value) {
  struct stat facts {};
  if (!descriptor.valid() || ::fstat(descriptor.number(), &facts) != 0 ||
      facts.st_size < static_cast<off_t>(kPageBytes)) {
    return bad_input("the daemon sent no page with its answer, expected 4096 bytes of memory");
  }
  // A page that could shrink would kill this process when it reads it.
  const int seals = ::fcntl(descriptor.number(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return bad_input("the daemon sent a page whose size is not sealed, expected a sealed memfd");
  }
  void* memory = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, descriptor.number(), 0);
  if (memory == MAP_FAILED) return page_error("mmap");
  ClientPage page;
  page.mapping_.reset(static_cast<const PageContent*>(memory));
  page.content_ = page.mapping_.get();
  page.go_value_ = go_value;
  return page;
}

}  // namespace regen::share
