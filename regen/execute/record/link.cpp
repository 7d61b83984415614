#include "regen/execute/record/link.h"

#include <algorithm>
#include <exception>
#include <vector>

namespace regen::execute {
namespace {

class LinkMeter {
 public:
  LinkMeter(ExecutionDevice& device, MemoryBlock arena, MemoryBlock host,
            const LinkOptions& options)
      : device_(device), arena_(std::move(arena)), host_(std::move(host)), options_(options) {}
  ~LinkMeter() { device_.synchronize(); }
  LinkMeter(const LinkMeter&) = delete;
  LinkMeter& operator=(const LinkMeter&) = delete;

  Link measure() {
    touch();
    Link link;
    link.to_host = rate({Queue::kToHost});
    link.to_device = rate({Queue::kToDevice});
    // Noise must not make the pair slower than one of them, or faster than their sum.
    link.both = std::clamp(rate({Queue::kToHost, Queue::kToDevice}),
                           std::max(link.to_host, link.to_device), link.to_host + link.to_device);
    return link;
  }

 private:
  struct Span {
    Event begin;
    Event end;
  };

  // Pages that were never written are not memory yet.
  void touch() {
    device_.copy(Queue::kToDevice, arena_.data(), host_.data(), 2 * options_.bytes);
    device_.synchronize();
    device_.copy(Queue::kToHost, host_.data(), arena_.data(), 2 * options_.bytes);
    device_.synchronize();
  }

  double rate(const std::vector<Queue>& queues) {
    std::vector<double> rates;
    rates.reserve(static_cast<std::size_t>(options_.repeats));
    for (int i = 0; i < options_.repeats; ++i) rates.push_back(rate_once(queues));
    std::nth_element(rates.begin(), rates.begin() + options_.repeats / 2, rates.end());
    return rates[static_cast<std::size_t>(options_.repeats / 2)];
  }

  double rate_once(const std::vector<Queue>& queues) {
    std::vector<Span> spans;
    spans.reserve(queues.size());
    for (const Queue queue : queues) spans.push_back(start_copy(queue));
    device_.synchronize();
    double begin = 0;
    double end = 0;
    for (const Span& span : spans) {
      begin = std::min(begin, device_.seconds_between(spans[0].begin, span.begin));
      end = std::max(end, device_.seconds_between(spans[0].begin, span.end));
    }
    device_.forget_timed();
    return static_cast<double>(options_.bytes) * static_cast<double>(queues.size()) /
           std::max(end - begin, 1e-9);
  }

  // Each direction has memory of its own, so that they can move at once.
  Span start_copy(Queue queue) {
    const bool to_host = queue == Queue::kToHost;
    void* device_side = arena_.at(to_host ? 0 : options_.bytes);
    void* host_side = host_.at(to_host ? 0 : options_.bytes);
    Span span;
    span.begin = device_.record_timed(queue);
    device_.copy(queue, to_host ? host_side : device_side, to_host ? device_side : host_side,
                 options_.bytes);
    span.end = device_.record_timed(queue);
    return span;
  }

  ExecutionDevice& device_;
  MemoryBlock arena_;
  MemoryBlock host_;
  const LinkOptions& options_;
};

}  // namespace

Result<Link> measure_link(ExecutionDevice& device, const LinkOptions& options) {
  if (options.bytes < 1 || options.repeats < 1) {
    return bad_input("link: " + std::to_string(options.repeats) + " copies of " +
                     std::to_string(options.bytes) + " bytes, expected at least one of one byte");
  }
  REGEN_ASSIGN(MemoryBlock arena, device.allocate_arena(2 * options.bytes));
  REGEN_ASSIGN(MemoryBlock host, device.allocate_host(2 * options.bytes));
  try {
    return LinkMeter(device, std::move(arena), std::move(host), options).measure();
  } catch (const std::exception& error) {
    return missing("link of " + device.name() + ": " + error.what());
  }
}

}  // namespace regen::execute
