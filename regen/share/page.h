// The word that tells a job whether it may go on: one page of shared memory for each client, which
// only the daemon can write. Reading it is the whole fast path.
//
// The word holds the go value (the daemon's thread id) or something else. All words of a daemon are
// on the robust list of its thread, so that the kernel itself changes them when the thread ends,
// even by SIGKILL: no job goes on under a daemon that is no more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "regen/base/result.h"

namespace regen::share {

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

  bool go() const { return word_->load(std::memory_order_acquire) == go_value_; }

 private:
  using Word = std::atomic<std::uint32_t>;
  static_assert(Word::is_always_lock_free, "processes share it");
  struct Unmap {
    void operator()(const Word* word) const;
  };
  static const Word kStop;

  std::unique_ptr<const Word, Unmap> mapping_;
  const Word* word_ = &kStop;
  std::uint32_t go_value_ = 1;
};

}  // namespace regen::share
