// The page: words of shared memory that state whether a job may go on and how many bytes it may
// use. There is one page for each client, and only the daemon can write it. Reading one word is the
// whole fast path.
//
// The first word holds the go value (the daemon's thread id) or something else. All such words of a
// daemon are on the robust list of its thread, so that the kernel changes them when the thread
// ends, even by SIGKILL: no job goes on under a daemon that has ended.
//
//   0                    the job does not hold the device, or must give way at its next quantum
//   go value             it may go on, but another job waits: it should not keep the device idle
//   go value + kCalm     it may go on, and no other job waits
//
// The second word is 1 while no job is registered that could interrupt this one, so that it may
// keep more work on the device.
//
// A thread of the job can sleep while the word is calm. The daemon wakes it, and so does the kernel
// when the daemon is killed (kCalm is the bit by which the kernel knows of sleepers).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "regen/base/result.h"
#include "regen/share/protocol/order.h"

namespace regen::share {

inline constexpr std::uint32_t kCalm = 0x80000000;  // FUTEX_WAITERS

// What both sides see.
struct PageContent {
  std::atomic<std::uint32_t> go;
  std::atomic<std::uint32_t> outranks_all;
  std::atomic<std::uint64_t> limit;  // ByteLimit::pack()

  static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
                    std::atomic<std::uint64_t>::is_always_lock_free,
                "processes share it");
};

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  // A second one for the same file, which programs that are started later do not get.
  static Descriptor copy_of(int number);

  int number() const { return number_; }
  bool valid() const { return number_ >= 0; }
  int release();

 private:
  int number_ = -1;
};

// The daemon's side. Made, changed and destroyed by one thread, whose end ends the permission.
class ServerPage {
 public:
  static Result<ServerPage> create();

  // For the client; it can be mapped for reading only.
  Descriptor take_descriptor() { return std::move(descriptor_); }
  std::uint32_t go_value() const;
  // set_go(true) also clears set_wanted().
  void set_go(bool go);
  // Whether another job waits behind a job that may go on.
  void set_wanted(bool wanted);
  // Whether no registered job could interrupt it in the middle of its turn.
  void set_outranks_all(bool outranks);
  void set_limit(const ByteLimit& limit);

 private:
  struct Memory;  // the page, and beside it the link of the robust list
  struct Unmap {
    void operator()(Memory* memory) const;
  };
  ServerPage() = default;
  void put(std::uint32_t value);

  std::unique_ptr<Memory, Unmap> memory_;
  Descriptor descriptor_;
};

// The client's side.
class ClientPage {
 public:
  // Without a daemon: go() is always false.
  ClientPage() = default;
  static Result<ClientPage> map(const Descriptor& descriptor, std::uint32_t go_value);

  bool go() const { return (content_->go.load(std::memory_order_acquire) & ~kCalm) == go_value_; }
  bool calm() const { return content_->go.load(std::memory_order_acquire) == (go_value_ | kCalm); }
  bool outranks_all() const { return content_->outranks_all.load(std::memory_order_relaxed) == 1; }
  ByteLimit limit() const {
    return ByteLimit::unpack(content_->limit.load(std::memory_order_acquire));
  }

  using Word = std::atomic<std::uint32_t>;
  // For a thread that waits for the end of calm. The page may be unmapped meanwhile: only the
  // kernel reads the address, and it refuses one that is not mapped.
  class Sleep {
   public:
    Sleep(const Word* word, std::uint32_t calm) : word_(word), calm_(calm) {}
    void while_calm() const;  // may also return for no reason
    void wake() const;

   private:
    const Word* word_;
    std::uint32_t calm_;
  };
  Sleep sleep() const { return {&content_->go, go_value_ | kCalm}; }

 private:
  struct Unmap {
    void operator()(const PageContent* content) const;
  };
  static const PageContent kStop;

  std::unique_ptr<const PageContent, Unmap> mapping_;
  const PageContent* content_ = &kStop;
  std::uint32_t go_value_ = 1;
};

}  // namespace regen::share
