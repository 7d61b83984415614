#include "regen/execute/device/cpu/device_cpu.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <optional>

#include "regen/execute/device/cpu/work_queue.h"
#include "regen/execute/device/cpu/worker.h"
#include "regen/execute/device/memory_meter.h"

namespace regen::execute {
namespace {

constexpr Bytes kAlignment = 64;

Result<void*> map_pages(Bytes bytes, const char* what) {
  if (bytes < 0 || bytes > kMaxBytes)
    return bad_input(std::string(what) + " of " + std::to_string(bytes) + " bytes: not a size");
  void* data = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return limit_reached(std::string(what) + " of " + format_bytes(bytes) +
                         ": the system refuses it (" + std::strerror(errno) +
                         "), expected a smaller budget or more free memory");
  return data;
}

void free_pages(void* data, Bytes bytes) {
  munmap(data, static_cast<std::size_t>(bytes));
}

// How much memory arenas have, and may have: a card of a certain size, for tests.
class ArenaRoom {
 public:
  explicit ArenaRoom(Bytes limit) : limit_(limit) {}

  Status take(Bytes bytes) {
    const std::lock_guard lock(mutex_);
    if (limit_ > 0 && used_ + bytes > limit_) {
      return limit_reached("arena of " + format_bytes(bytes) + ": " + format_bytes(limit_ - used_) +
                           " of " + format_bytes(limit_) +
                           " are free, expected a smaller budget or more free memory");
    }
    used_ += bytes;
    count_arena_bytes(bytes);
    return {};
  }
  void give(Bytes bytes) {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    count_arena_bytes(-bytes);
  }

 private:
  const Bytes limit_;
  std::mutex mutex_;
  Bytes used_ = 0;
};

// While the pages are away, an access to them is stopped by the system.
class CpuPages final : public Pages {
 public:
  CpuPages(std::shared_ptr<ArenaRoom> room, void* data, Bytes bytes, ArenaKind kind)
      : room_(std::move(room)), data_(data), bytes_(bytes), kind_(kind) {}
  ~CpuPages() override {
    free_pages(data_, bytes_);
    if (taken_) room_->give(bytes_);
  }

  Status take() override {
    REGEN_TRY(room_->take(bytes_));
    if (mprotect(data_, size(), PROT_READ | PROT_WRITE) != 0) {
      room_->give(bytes_);
      return limit_reached("pages for an arena of " + format_bytes(bytes_) +
                           ": the system refuses them (" + std::strerror(errno) +
                           "), expected a smaller budget or more free memory");
    }
    taken_ = true;
    return {};
  }

  Status release() override {
    if (kind_ == ArenaKind::kFixed)
      return bad_input(
          "the arena's memory cannot be released: it was allocated to stay, expected "
          "releasable=True");
    if (mprotect(data_, size(), PROT_NONE) != 0 || madvise(data_, size(), MADV_DONTNEED) != 0) {
      const std::string reason = std::strerror(errno);
      static_cast<void>(mprotect(data_, size(), PROT_READ | PROT_WRITE));
      return bad_input("the system does not take the arena's pages back: " + reason);
    }
    taken_ = false;
    room_->give(bytes_);
    return {};
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(bytes_); }

  std::shared_ptr<ArenaRoom> room_;
  void* data_;
  Bytes bytes_;
  ArenaKind kind_;
  bool taken_ = false;
};

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

// A whole number in a file of the system, such as a limit of a container.
std::optional<Bytes> number_in(const char* path) {
  std::ifstream file(path);
  Bytes value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// "MemAvailable:   123 kB", in bytes.
std::optional<Bytes> available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    Bytes kilobytes = 0;
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

class KeptCall final : public CapturedWork {
 public:
  explicit KeptCall(std::function<void()> call) : call_(std::move(call)) {}
  void launch() override { call_(); }
  Bytes bytes() const override { return 0; }

 private:
  std::function<void()> call_;
};

class ThreadedCpuDevice final : public CpuDevice {
 public:
  explicit ThreadedCpuDevice(const CpuDeviceOptions& options)
      : name_(options.name.empty() ? cpu_name() : options.name),
        captures_(options.captures),
        room_(std::make_shared<ArenaRoom>(options.arena_bytes)) {
    queue(Queue::kToHost).emplace(options.copy_bytes_per_second);
    queue(Queue::kToDevice).emplace(options.copy_bytes_per_second);
    if (options.asynchronous_compute) queue(Queue::kCompute).emplace();
    if (options.run_on_worker) worker_.emplace();
  }

  // One queue may wait for another, so all are empty before any of them ends.
  ~ThreadedCpuDevice() override { drain(); }

  c10::Device torch_device() const override { return c10::kCPU; }
  const std::string& name() const override { return name_; }
  Bytes alignment() const override { return kAlignment; }

  Result<DeviceMemory> memory() override {
    const Bytes page = sysconf(_SC_PAGESIZE);
    DeviceMemory memory{.total = sysconf(_SC_PHYS_PAGES) * page,
                        .free = sysconf(_SC_AVPHYS_PAGES) * page};
    if (const auto available = available_bytes()) memory.free = *available;
    const auto limit = number_in("/sys/fs/cgroup/memory.max");
    const auto used = number_in("/sys/fs/cgroup/memory.current");
    if (limit && used) {
      memory.total = std::min(memory.total, *limit);
      memory.free = std::min(memory.free, std::max<Bytes>(0, *limit - *used));
    }
    return memory;
  }

  Result<MemoryBlock> allocate_arena(Bytes bytes, ArenaKind kind) override {
    const Bytes rounded = (std::max<Bytes>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    REGEN_ASSIGN(void* data, map_pages(bytes < 0 ? bytes : rounded, "arena"));
    auto pages = std::make_unique<CpuPages>(room_, data, rounded, kind);
    REGEN_TRY(pages->take());
    return MemoryBlock(data, rounded, std::move(pages));
  }

  Result<MemoryBlock> allocate_host(Bytes bytes) override {
    if (bytes == 0) return MemoryBlock();
    REGEN_ASSIGN(void* data, map_pages(bytes, "host memory"));
    return MemoryBlock(data, bytes, free_pages);
  }

  void copy(Queue where, void* to, const void* from, Bytes bytes) override {
    rethrow();
    if (auto& q = queue(where)) return q->copy(to, from, bytes);
    if (bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
  }

  Event record(Queue where) override {
    rethrow();
    auto& q = queue(where);
    return {.queue = where, .ticket = q ? q->newest() : 0};
  }

  void wait(Queue waiter, const Event& event) override {
    rethrow();
    if (waiter == event.queue || is_done(event)) return;
    WorkQueue& source = *queue(event.queue);
    if (auto& q = queue(waiter)) return q->wait_for(source, event.ticket);
    source.block_until(event.ticket);
    rethrow();
  }

  bool done(const Event& event) override {
    rethrow();
    return is_done(event);
  }

  bool await(const Event& event, double /*expected_seconds*/, const Gate* /*gate*/) override {
    if (!is_done(event)) queue(event.queue)->block_until(event.ticket);
    rethrow();
    return true;
  }

  void synchronize() override {
    drain();
    rethrow();
  }

  void finish() override { drain(); }

  void hold_compute(double /*seconds*/) override {}

  Event record_timed(Queue where) override {
    rethrow();
    const std::lock_guard lock(mutex_);
    double& seconds = times_.emplace_back(now_seconds());
    auto& q = queue(where);
    if (q) q->stamp(&seconds);
    return {.queue = where,
            .mark = static_cast<std::uint32_t>(times_.size()),
            .ticket = q ? q->newest() : 0};
  }

  double seconds_between(const Event& begin, const Event& end) override {
    const std::lock_guard lock(mutex_);
    return time_of(end) - time_of(begin);
  }

  void forget_timed() override {
    drain();  // a queue may have to write a time yet
    const std::lock_guard lock(mutex_);
    times_.clear();
  }

  void run(const std::function<void()>& work) override {
    if (worker_) return worker_->run(work);
    work();
  }

  std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) override {
    return captures_ ? std::make_unique<KeptCall>(work) : nullptr;
  }
  std::unique_ptr<StreamScope> own_stream() override { return nullptr; }

  void run_aside(const std::function<void()>& work) override { Worker().run(work); }
  void note_choices() override { chosen_ = true; }
  void forget_choices() override {
    if (worker_ && chosen_.exchange(false)) worker_->renew();
  }

  void post(Queue where, std::function<void()> work) override {
    rethrow();
    if (auto& q = queue(where)) return q->post(std::move(work));
    work();
  }

 private:
  std::optional<WorkQueue>& queue(Queue which) { return queues_[static_cast<std::size_t>(which)]; }

  bool is_done(const Event& event) {
    auto& q = queue(event.queue);
    return !q || q->done(event.ticket);
  }

  double time_of(const Event& event) {
    TORCH_CHECK(event.mark > 0 && event.mark <= times_.size(),
                "regen: the time of an event that has none, or was forgotten, was asked for");
    TORCH_CHECK(is_done(event), "regen: the time of an event that is not done was asked for");
    return times_[event.mark - 1];
  }

  // What a queue waits for was enqueued before, so going round once is enough.
  void drain() {
    for (auto& q : queues_) {
      if (q) q->block_until(q->newest());
    }
  }

  void rethrow() {
    for (auto& q : queues_) {
      if (q) q->rethrow();
    }
  }

  std::string name_;
  const bool captures_;
  std::shared_ptr<ArenaRoom> room_;                       // arenas may outlive the device
  std::array<std::optional<WorkQueue>, kQueues> queues_;  // no compute queue: the caller is it
  std::optional<Worker> worker_;
  std::atomic<bool> chosen_ = false;  // on the worker's thread
  std::mutex mutex_;                  // of times_
  std::deque<double> times_;          // by mark - 1; queues hold on to the addresses
};

}  // namespace

std::shared_ptr<CpuDevice> make_cpu_device(const CpuDeviceOptions& options) {
  return std::make_shared<ThreadedCpuDevice>(options);
}

}  // namespace regen::execute
