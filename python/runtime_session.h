// A session as Python sees it: the step of regen/session with the job that this process may be.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "regen/session/plan_page.h"
#include "regen/session/session.h"
#include "regen/share/client/device_lease.h"

namespace regen {

// What a job moves out of the way, as the lease on its device asks for it. An error does not stop the
// job: the daemon gets the bytes that are left, and the caller the reason, by take_problems().
class MovableJobMemory final : public share::MovableMemory {
 public:
  const std::shared_ptr<session::JobMemory>& memory() const { return memory_; }

  Bytes make_room(share::Depth depth) override;
  Status come_back() override { return memory_->come_back(); }
  // Why memory could not go, since the last call. Each reason is returned once.
  std::vector<std::string> take_problems();

 private:
  std::shared_ptr<session::JobMemory> memory_ = std::make_shared<session::JobMemory>();
  std::mutex mutex_;  // make_room may be called on a thread that listens to the daemon
  std::set<std::string> known_problems_;
  std::vector<std::string> new_problems_;
};

// The job that this process is, and how it lives with others.
struct SessionJob {
  std::shared_ptr<share::DeviceLease> job;  // null: no job
  double quantum_seconds = execute::kQuantumSeconds;
  std::shared_ptr<MovableJobMemory> memory;  // null: the job's bytes do not change
  std::optional<Bytes> limit;                // what the job may use; absent: what it asked for
};

// Everything that takes time runs without Python's lock.
class RuntimeSession {
 public:
  using Samples = std::map<std::size_t, at::Tensor>;

  RuntimeSession(const std::string& program, const std::string& device,
                 const session::Settings& settings, const Samples& samples,
                 const std::optional<std::string>& measurements,
                 const std::optional<Bytes>& fraction_of, const SessionJob& job);
  ~RuntimeSession();

  session::Session& session() { return *session_; }
  const session::Session& session() const { return *session_; }
  const session::RecordedStep& recorded() const { return session_->recorded(); }
  // Of the step that is compiled; else an error.
  session::CompiledStep& running();
  execute::Executor& executor() { return running().executor(); }

  void plan();
  bool plan_by(const std::vector<std::string>& planners, double seconds, std::int64_t work);
  std::optional<Bytes> least_budget();
  bool take_least_plan();
  // `other`: compiled, and its arena is taken in place of an own one; null: none.
  void compile(RuntimeSession* other);
  void release();
  void follow_limit(Bytes limit);
  void search_beside();
  bool take_better_plan(std::int64_t number);

  // As Executor::add_sizes: (storage, bytes), (value, sizes, strides, offset), (node, arguments and
  // keyword arguments as JSON).
  using SizedStorages = std::vector<std::tuple<std::size_t, Bytes>>;
  using SizedValues = std::vector<
      std::tuple<std::size_t, std::vector<std::int64_t>, std::vector<std::int64_t>, std::int64_t>>;
  using SizedCalls = std::vector<std::tuple<std::size_t, std::string, std::string>>;
  void add_sizes(std::uint64_t number, const SizedStorages& storages, const SizedValues& values,
                 const SizedCalls& calls);
  Bytes unplanned_bytes_at(const SizedStorages& storages, const SizedValues& values,
                           const SizedCalls& calls) const;

  // Runs ask the gate before each quantum; null: never. The job is not asked any more.
  void set_gate(std::shared_ptr<Gate> gate, double quantum_seconds);
  void bind(const std::vector<std::tuple<std::size_t, at::Tensor, std::int64_t>>& tensors);
  void run(std::size_t part);
  // Session::foresee_more().
  bool foresee_more();
  // Of each call of an island: its key, whether it is the backward pass, bytes of its pool, bytes that
  // it holds for the backward pass, seconds.
  using IslandCosts = std::vector<std::tuple<std::int64_t, bool, Bytes, Bytes, double>>;
  IslandCosts island_costs() const;
  Bytes spill();
  void restore();
  void take_back(const std::vector<at::Tensor>& tensors, bool through_host);
  void stop_lending();

  // The data of a report page, as JSON. `islands`: name, source, reason, bytes held, bytes worked in,
  // seconds. `other`: the path of a plan file, or empty.
  using Islands =
      std::vector<std::tuple<std::string, std::string, std::string, Bytes, Bytes, double>>;
  std::string report_json(std::optional<Bytes> measured_peak,
                          std::optional<double> measured_seconds, const Islands& islands,
                          const std::string& other) const;

  std::string report_text(std::optional<Bytes> measured_peak,
                          std::optional<double> measured_seconds) const;

 private:
  Status open(const session::CapturedStep& captured, const session::Settings& settings,
              const Samples& samples, const std::optional<std::string>& measurements,
              const std::optional<Bytes>& fraction_of, const SessionJob& job);
  Status run_as_job(std::size_t part);
  // What went wrong without stopping the session, as warnings of Python.
  void warn();

  std::shared_ptr<share::DeviceLease> job_;
  std::unique_ptr<session::Session> session_;
};

void bind_session(pybind11::module_& module);

}  // namespace regen
