// The words that tell a job whether it may go on and how many bytes it may use: one page of shared
// memory for each client, which only the daemon can write. Reading one is the whole fast path.
//
// The first word holds the go value (the daemon's thread id) or something else. All such words of a
// daemon are on the robust list of its thread, so that the kernel itself changes them when the
// thread ends, even by SIGKILL: no job goes on under a daemon that is no more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "regen/base/result.h"
#include "regen/share/order.h"

namespace regen::share {

// What both sides see.
struct PageContent {
  std::atomic<std::uint32_t> go;
  std::uint32_t unused;
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
  void set_go(bool go);
  void set_limit(const ByteLimit& limit);

 private:
  struct Memory;  // the page, and beside it the link of the robust list
  struct Unmap {
    void operator()(Memory* memory) const;
  };
  ServerPage() = default;

  std::unique_ptr<Memory, Unmap> memory_;
  Descriptor descriptor_;
};

// The client's side.
class ClientPage {
 public:
  // Of nobody: it never says go.
  ClientPage() = default;
  static Result<ClientPage> map(const Descriptor& descriptor, std::uint32_t go_value);

  bool go() const { return content_->go.load(std::memory_order_acquire) == go_value_; }
  ByteLimit limit() const {
    return ByteLimit::unpack(content_->limit.load(std::memory_order_acquire));
  }

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
