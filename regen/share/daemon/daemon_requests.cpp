#include <csignal>
#include <utility>

#include "regen/base/json_fields.h"
#include "regen/base/text.h"
#include "regen/share/daemon/daemon_loop.h"
#include "regen/share/scheduler/job_table.h"

namespace regen::share {
namespace {

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

void Daemon::on_message(Connection& connection, const Message& message) {
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
  if (clients_.contains(&connection)) {
    return connection.refuse(bad_input("second register on one connection, expected one"));
  }
  const auto spec = read_spec(message);
  if (!spec.ok()) return connection.refuse(spec.error());
  if (settling_ && !spec->again) {
    newcomers_.push_back({connection.weak_from_this(), *spec});
    return connection.set_registered();  // it waits for us
  }
  register_job(connection, *spec);
}

void Daemon::register_job(Connection& connection, const JobSpec& spec) {
  if (clients_.contains(&connection)) return;  // it asked twice while we settled
  auto page = ServerPage::create();
  if (!page.ok()) return connection.refuse(page.error());
  const auto job = scheduler_.add(spec, connection.process(), clock_now());
  if (job.ok()) absent_.erase(spec.identity);
  if (!job.ok()) {
    log("refused: " + job.error().message);
    return connection.refuse(job.error());
  }
  Client& client =
      clients_.emplace(&connection, Client{*job, std::move(page).value()}).first->second;
  connection_of_.emplace(*job, &connection);
  connection.set_registered();
  client.process = when_ended(connection.process(), [weak = connection.weak_from_this()] {
    if (const ConnectionPointer gone = weak.lock()) gone->close();
  });
  if (!scheduler_.admitted(*job)) log(label(*job) + " waits for memory");
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
      client.page.set_go(false);
      return scheduler_.yield(client.job, now);
    case MessageType::kIdle: {
      std::optional<Bytes> left;
      if (has_field(body, "left_bytes")) {
        REGEN_ASSIGN(left, read_bytes(message, "left_bytes"));
      }
      client.page.set_go(false);
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
    default: {
      REGEN_ASSIGN(const Bytes left, read_bytes(message, "left_bytes"));
      return scheduler_.made_room(client.job, left, now);
    }
  }
}

Status Daemon::answer(Connection& connection, const Message& message) {
  if (message.type == MessageType::kStatus) {
    connection.send({MessageType::kReport, to_json(status())});
    return {};
  }
  if (message.type == MessageType::kChange) {
    REGEN_TRY(change_job(message));
    connection.send({MessageType::kChanged, Json::object()});
    return {};
  }
  REGEN_ASSIGN(const JobSpec spec, read_spec(message));
  REGEN_TRY(scheduler_.check(spec));
  connection.send({MessageType::kFits, Json::object()});
  return {};
}

Status Daemon::change_job(const Message& message) {
  const JsonCursor body(message.body, "message body");
  REGEN_ASSIGN(const JsonCursor name_field, required_field(body, "job"));
  REGEN_ASSIGN(const std::string name, name_field.string());
  REGEN_ASSIGN(const JobChange change, change_from_json(body));
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
  connection_of_.erase(job);
  clients_.erase(found);
  scheduler_.remove(job, clock_now());
}

void Daemon::keep_job_table() {
  if (std::exchange(job_table_changed_, false)) {
    write_job_table(options_.socket + ".jobs", scheduler_.job_table());
  }
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
  files.push_back(use_.share());
  if (!files.back().valid()) files.pop_back();
  connection.send({MessageType::kRegistered,
                   {{"job", client.job.index()},
                    {"go", client.page.go_value()},
                    {"device", scheduler_.device_index(client.job)}}},
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
