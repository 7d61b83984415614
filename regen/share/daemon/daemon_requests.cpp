#include <algorithm>
#include <csignal>
#include <utility>

#include "regen/base/json_fields.h"
#include "regen/base/text.h"
#include "regen/share/daemon/daemon_loop.h"
#include "regen/share/report/request_times.h"
#include "regen/share/scheduler/job_table.h"

namespace regen::share {
namespace {

// So many jobs cannot keep the daemon busy.
constexpr std::size_t kFewJobs = 64;
constexpr std::int64_t kReportParts = 4;
// Before files are tried again that could not be written, on a full disk for example.
constexpr auto kFilesPause = std::chrono::milliseconds(250);

bool is_turn(MessageType type) {
  return type == MessageType::kAcquire || type == MessageType::kYield ||
         type == MessageType::kIdle || type == MessageType::kConfirm ||
         type == MessageType::kMadeRoom || type == MessageType::kRequests;
}

Result<JobSpec> read_spec(const Message& message) {
  return job_from_json(JsonCursor(message.body, "message body"));
}

// A whole number of bytes in a message.
Result<Bytes> read_bytes(const Message& message, const char* key) {
  const JsonCursor body(message.body, "message body");
  REGEN_ASSIGN(const JsonCursor field, required_field(body, key));
  return field.whole(0, kMaxBytes);
}

}  // namespace

// Requests that are no turns are paid for by their user; turns are limited only where they take most of the daemon's time.
void Daemon::on_message(Connection& connection, const Message& message) {
  if (is_turn(message.type) && clients_.size() < kFewJobs) return handle(connection, message);
  const Nanoseconds began = time_used();
  handle(connection, message);
  charge(connection, message, time_used() - began, clock_now());
}

void Daemon::charge(Connection& connection, const Message& message, Nanoseconds cost,
                    Nanoseconds now) {
  const auto client = clients_.find(&connection);
  const bool is_job = client != clients_.end();
  if (is_job && is_turn(message.type)) {
    all_turns_.spend(cost, 2, now);
    client->second.turns.spend(cost, 2 * static_cast<std::int64_t>(clients_.size()), now);
    if (all_turns_.debt(now) > 0) connection.pause(client->second.turns.debt(now));
    return;
  }
  const std::int64_t user = connection.peer().user;
  expenses_.spend(user, cost, now);
  // A job that was just admitted has waited for that already.
  if (!is_job || message.type != MessageType::kRegister)
    connection.pause(expenses_.debt(user, now));
}

void Daemon::handle(Connection& connection, const Message& message) {
  const auto client = clients_.find(&connection);
  Status done;
  if (message.type == MessageType::kRegister) {
    on_register(connection, message);
  } else if (message.type == MessageType::kCheck || message.type == MessageType::kStatus ||
             message.type == MessageType::kChange) {
    done = answer(connection, message);
  } else if (client == clients_.end() || !client->second.admitted) {
    done = bad_input("message " + std::to_string(static_cast<int>(message.type)) +
                     " of a connection without a job, expected register first");
  } else {
    done = on_request(client->second, message);
  }
  if (!done.ok()) connection.refuse(done.error());
  carry_out_orders();
}

void Daemon::on_register(Connection& connection, const Message& message) {
  if (clients_.contains(&connection) || connection.registered()) {
    return connection.refuse(bad_input("second register on one connection, expected one"));
  }
  const auto spec = read_spec(message);
  if (!spec.ok()) return connection.refuse(spec.error());
  if (settling_ && !spec->again) {
    newcomers_.push_back({connection.weak_from_this(), *spec});
    return connection.set_registered();  // it waits for the daemon
  }
  register_job(connection, *spec);
}

void Daemon::register_job(Connection& connection, JobSpec spec) {
  if (connection.over()) return;
  // A child has its connection.
  if (connection.peer().ended()) return connection.close();
  limit_claims(connection.peer(), spec);
  // Its end must be known: a child may have its connection.
  ProcessEnd process = when_ended(Descriptor::copy_of(connection.peer().descriptor.number()),
                                  [weak = connection.weak_from_this()] {
                                    if (const ConnectionPointer gone = weak.lock()) gone->close();
                                  });
  const bool watchable = connection.peer().descriptor.valid() || connection.peer().system_was_short;
  if (watchable && !process.known()) {
    return connection.refuse(limit_reached(
        "the daemon has no descriptor left to watch a job's process, expected fewer jobs or a "
        "higher limit (ulimit -n)"));
  }
  auto page = ServerPage::create();
  if (!page.ok()) return connection.refuse(page.error());
  auto use = use_.make();
  if (!use.ok()) return connection.refuse(use.error());
  const auto job = add_job(connection, spec, use->number());
  if (!job.ok()) {
    log("refused: " + job.error().message);
    return connection.refuse(job.error());
  }
  Client& client =
      clients_.emplace(&connection, Client{*job, std::move(page).value()}).first->second;
  client.use = std::move(use).value();
  connection_of_.emplace(*job, &connection);
  connection.set_registered();
  client.process = std::move(process);
  if (!scheduler_.admitted(*job)) log(label(*job) + " waits for memory");
}

Result<JobId> Daemon::add_job(Connection& connection, const JobSpec& spec, UseNumber file) {
  const Peer& peer = connection.peer();
  REGEN_TRY(may_register(peer, spec));
  const JobOwner owner(peer.process, peer.start(), peer.user, file);
  REGEN_ASSIGN(const JobId job, scheduler_.add(spec, owner, clock_now()));
  absent_.erase(spec.identity);
  return job;
}

// What a job says it had before counts as far as the job table knows of it. Else any job could skip the admission.
void Daemon::limit_claims(const Peer& peer, JobSpec& spec) const {
  if (!spec.again || options_.rights.is_administrator(peer)) return;
  const auto expected = scheduler_.expected(spec.identity);
  if (!expected) {
    spec.again = false;
    spec.full_bytes = spec.held_bytes = 0;
    return;
  }
  const bool known = spec.full_bytes > 0;
  spec.held_bytes = known ? spec.held_bytes : spec.memory;
  spec.full_bytes = known ? spec.full_bytes : spec.memory;
  spec.full_bytes = std::clamp<Bytes>(scheduler_.full_bytes(*expected), 1, spec.full_bytes);
  spec.held_bytes = std::min(spec.held_bytes, spec.full_bytes);
}

Status Daemon::may_register(const Peer& peer, const JobSpec& spec) const {
  const auto expected = scheduler_.expected(spec.identity);
  const std::int64_t owner = expected ? scheduler_.owner(*expected).user : kUnknownUser;
  if (owner != kUnknownUser) {
    REGEN_TRY(options_.rights.may_change(peer, spec.identity, owner));
  }
  REGEN_ASSIGN(const std::size_t device, scheduler_.find_device(spec.device));
  return options_.rights.allows(peer, spec, held_by(peer.user, device, expected));
}

UserHolds Daemon::held_by(std::int64_t user, std::size_t device, std::optional<JobId> but) const {
  UserHolds held;
  for (const JobId job : scheduler_.all_jobs()) {
    if (scheduler_.owner(job).user != user || job == but) continue;
    ++held.jobs;
    if (scheduler_.device_index(job) == device) held.memory += scheduler_.spec(job).memory;
  }
  return held;
}

// The word that it is done comes after the work is: else two jobs would use the device.
Status Daemon::give_back(Client& client) {
  client.page.set_go(false);
  const std::size_t device = scheduler_.device_index(client.job);
  if (!use_.held_last(device, client.use.number()) || !client.use.uses(device)) return {};
  return bad_input("job " + in_quotes(scheduler_.spec(client.job).name) +
                   " gives back a device that it uses, expected it to unlock the device first");
}

Status Daemon::on_request(Client& client, const Message& message) {
  const Nanoseconds now = clock_now();
  const JsonCursor body(message.body, "message body");
  switch (message.type) {
    case MessageType::kAcquire:
      scheduler_.want(client.job, now);
      return {};
    case MessageType::kYield:
      // It gives the device back by this message; a new grant, if any, comes after it.
      REGEN_TRY(give_back(client));
      return scheduler_.yield(client.job, now);
    case MessageType::kIdle: {
      std::optional<Bytes> left;
      if (has_field(body, "left_bytes")) {
        REGEN_ASSIGN(left, read_bytes(message, "left_bytes"));
      }
      REGEN_TRY(give_back(client));
      scheduler_.rest(client.job, left, now);
      return {};
    }
    case MessageType::kUpdate: {
      REGEN_ASSIGN(const Curve curve, curve_from_json(body));
      return scheduler_.update(client.job, curve, now);
    }
    case MessageType::kConfirm: {
      REGEN_ASSIGN(const Bytes used, read_bytes(message, "used_bytes"));
      REGEN_ASSIGN(const std::int64_t generation, read_bytes(message, "generation"));
      scheduler_.confirm(client.job, static_cast<std::uint32_t>(generation), used, now);
      return {};
    }
    case MessageType::kRequests: {
      REGEN_ASSIGN(const RequestTimes times, request_times_from_json(body));
      scheduler_.note_requests(client.job, times, now);
      return {};
    }
    default: {
      REGEN_ASSIGN(const Bytes left, read_bytes(message, "left_bytes"));
      REGEN_ASSIGN(const auto again_after, scheduler_.made_room(client.job, left, now));
      if (again_after) {
        log(label(client.job) + " could not make room: " + format_grouped(left) +
            " bytes are still there; asked again in " + format_exact(to_seconds(*again_after)) +
            " s at the earliest");
      }
      return {};
    }
  }
}

Status Daemon::answer(Connection& connection, const Message& message) {
  if (message.type == MessageType::kStatus) {
    refresh_report();
    connection.send(report_.message);
    return {};
  }
  if (message.type == MessageType::kChange) {
    REGEN_TRY(change_job(connection, message));
    connection.send({MessageType::kChanged, Json::object()});
    return {};
  }
  REGEN_ASSIGN(JobSpec spec, read_spec(message));
  limit_claims(connection.peer(), spec);
  REGEN_TRY(may_register(connection.peer(), spec));
  REGEN_TRY(scheduler_.check(spec));
  connection.send({MessageType::kFits, Json::object()});
  return {};
}

void Daemon::refresh_report() {
  const Nanoseconds now = clock_now();
  if (report_.message && report_.allowance.debt(now) > 0) return;
  const Nanoseconds began = time_used();
  const Json content = to_json(status());
  report_.message = std::make_shared<const std::string>(encode({MessageType::kReport, content}));
  report_.metrics = std::make_shared<const std::string>(prometheus_text(content));
  report_.allowance.spend(time_used() - began, kReportParts, clock_now());
}

std::string Daemon::on_metrics(Connection& connection) {
  const Nanoseconds began = time_used();
  refresh_report();
  expenses_.spend(connection.peer().user, time_used() - began, clock_now());
  return *report_.metrics;
}

Status Daemon::change_job(Connection& connection, const Message& message) {
  const JsonCursor body(message.body, "message body");
  REGEN_ASSIGN(const JsonCursor name_field, required_field(body, "job"));
  REGEN_ASSIGN(const std::string name, name_field.string());
  REGEN_ASSIGN(const JobChange change, change_from_json(body));
  REGEN_ASSIGN(const JobId job, scheduler_.find_job(name));
  const std::int64_t owner = scheduler_.owner(job).user;
  REGEN_TRY(options_.rights.may_change(connection.peer(), name, owner));
  // Only what it changes is judged: the rest may be what an administrator has allowed.
  const JobSpec asked{.name = name,
                      .priority = change.priority.value_or(0),
                      .weight = change.weight.value_or(kMinWeight),
                      .memory = change.memory.value_or(0)};
  REGEN_TRY(options_.rights.allows(connection.peer(), asked,
                                   held_by(owner, scheduler_.device_index(job), job)));
  REGEN_TRY(scheduler_.change(name, change, clock_now()));
  job_table_changed_ = true;
  keep_job_table();  // before the reply is sent
  log("job " + in_quotes(name) + " changed: " + on_one_line(message.body.dump(), 200));
  return {};
}

void Daemon::on_closed(Connection& connection) {
  const auto found = clients_.find(&connection);
  if (found != clients_.end()) {
    log(label(found->second.job) + " left");
    forget(connection);
    job_table_changed_ = true;
    if (!stopping_) {
      carry_out_orders();
      keep_job_table();
    }
  }
  connections_.erase(connection.shared_from_this());
}

void Daemon::forget(Connection& connection) {
  const auto found = clients_.find(&connection);
  const JobId job = found->second.job;
  const std::size_t device = scheduler_.device_index(job);
  UseFile use = std::move(found->second.use);
  connection_of_.erase(job);
  clients_.erase(found);
  // The kernel may close its connection before it has ended, and a job that is not killed may go on.
  if (stopping_) use.keep();
  if (use_.held_last(device, use.number()) && use.uses(device)) {
    close_device(device, {.use = std::move(use),
                          .number = connection.peer().process,
                          .process = Descriptor::copy_of(connection.peer().descriptor.number()),
                          .since = clock_now()});
  }
  scheduler_.remove(job, clock_now());
}

// What cannot be written is written later. Until then a daemon that starts after a crash would know less than this one.
void Daemon::keep_job_table() {
  if (!job_table_changed_) return;
  const Status written = write_job_table(options_.socket + ".jobs", scheduler_.job_table());
  job_table_changed_ = !written.ok();
  say_of_files(written);
}

void Daemon::note_holder(std::size_t device, UseNumber number) {
  say_of_files(use_.set_last_holder(device, number));
}

// Once, and when all is well again.
void Daemon::say_of_files(const Status& written) {
  if (written.ok()) {
    if (!job_table_changed_ && use_.written() && std::exchange(files_failed_, false))
      log("the daemon's files are written again");
    return;
  }
  if (!std::exchange(files_failed_, true)) log(written.error().message + "; tried again");
  write_files_later();
}

void Daemon::write_files_later() {
  if (stopping_) return;
  files_pause_.expires_after(kFilesPause);
  files_pause_.async_wait([this](asio::error_code cancelled) {
    if (cancelled || stopping_) return;
    keep_job_table();
    say_of_files(use_.write_down());
  });
}

// Sending may close a connection, which gives new orders; the loop takes those too, after the ones
// that were given before. Pages are written first: a job that gets its turn sees at once whether
// another job waits behind it.
void Daemon::carry_out_orders() {
  if (std::exchange(carrying_out_, true)) return;
  for (auto orders = scheduler_.take_orders(); !orders.empty(); orders = scheduler_.take_orders()) {
    // Before a job acts on it.
    for (const Order& order : orders) {
      job_table_changed_ |= order.kind == Order::Kind::kLimit || order.kind == Order::Kind::kAdmit;
    }
    keep_job_table();
    for (const Order& order : orders) {
      const auto found = connection_of_.find(order.job);
      if (found != connection_of_.end()) clients_.at(found->second).set_word(order.kind);
    }
    show_who_waits();
    for (const Order& order : orders) {
      const auto found = connection_of_.find(order.job);
      if (found == connection_of_.end()) continue;
      carry_out(order, *found->second, clients_.at(found->second));
    }
  }
  carrying_out_ = false;
  show_who_waits();
  set_timer();
}

void Daemon::show_who_waits() {
  for (const LeaseView& holder : scheduler_.holders()) {
    const auto found = connection_of_.find(holder.job);
    if (found == connection_of_.end()) continue;
    ServerPage& page = clients_.at(found->second).page;
    page.set_outranks_all(holder.outranks_all);
    page.set_wanted(holder.wanted);
  }
}

void Daemon::carry_out(const Order& order, Connection& connection, Client& client) {
  using enum Order::Kind;
  switch (order.kind) {
    case kGrant:
      note_holder(scheduler_.device_index(client.job), client.use.number());
      return connection.send({MessageType::kGranted});
    case kGiveWay:
    case kGoOn:
      client.hung = 0;
      return;
    case kHung:
      return on_hung(client);
    case kLimit:
      client.page.set_limit(order.limit);
      // A running job reads its page; the message is for jobs that sleep.
      if (client.admitted && !connection.backed_up()) connection.send({MessageType::kLimit});
      return;
    case kMakeRoom:
      return connection.send({MessageType::kMakeRoom, {{"depth", to_string(order.depth)}}});
    case kAdmit:
      return welcome(connection, client);
    case kExpire: {
      const Error error = scheduler_.expiry(client.job, clock_now());
      log("refused: " + error.message);
      forget(connection);
      return connection.refuse(error);
    }
    case kUpdated:
      return connection.send({MessageType::kUpdated});
  }
}

void Daemon::welcome(Connection& connection, Client& client) {
  client.admitted = true;
  log(label(client.job) + " admitted");
  std::vector<Descriptor> files;
  files.push_back(client.page.take_descriptor());
  files.push_back(client.use.take_share());
  connection.send({MessageType::kRegistered,
                   {{"job", client.job.index()},
                    {"go", client.page.go_value()},
                    {"device", scheduler_.device_index(client.job)},
                    {"takes_requests", true}}},
                  std::move(files));
}

// Only the end of a process ends its work on a device, so that nothing less would be safe.
void Daemon::on_hung(Client& client) {
  const int signal = ++client.hung == 1 ? SIGTERM : SIGKILL;
  const bool kill = options_.kill_hung && client.process.known();
  log(label(client.job) + " has not given way for " +
      format_exact(to_seconds(options_.holder_patience * client.hung)) + " s" +
      (kill ? signal == SIGTERM ? ", asked to end" : ", killed" : ""));
  if (kill) client.process.send_signal(signal);
}

std::string Daemon::label(JobId job) const {
  return "job " + in_quotes(scheduler_.spec(job).name) + " (process " +
         std::to_string(scheduler_.process(job)) + ")";
}

}  // namespace regen::share
