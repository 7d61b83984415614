// The last hour of devices and jobs, beside sums over everything that happened.
#include "regen/share/web/history.h"

#include <gtest/gtest.h>

#include <cmath>

#include "regen/base/random.h"

namespace regen::share {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr double kStepSeconds = 5;

JobStatus job(const std::string& identity, Nanoseconds age) {
  JobStatus status;
  status.name = "job " + identity;
  status.identity = identity;
  status.age = age;
  return status;
}

DaemonStatus daemon(Nanoseconds age, std::vector<JobStatus> jobs = {}) {
  DaemonStatus status{.age = age};
  status.devices.push_back({.name = "gpu0", .jobs = std::move(jobs)});
  return status;
}

// Four digits are kept.
void expect_near(const Json& found, double wanted) {
  ASSERT_TRUE(found.is_number()) << found;
  EXPECT_NEAR(found.get<double>(), wanted, std::max(1e-9, std::abs(wanted) * 6e-4));
}

TEST(History, IsEmptyAtFirst) {
  History history;
  EXPECT_EQ(history.last_step(), -1);
  history.add(daemon(0));
  history.add(daemon(4 * kSecond));
  const Json json = history.json();
  EXPECT_EQ(json["last_step"], -1);
  EXPECT_EQ(json["devices"][0]["utilisation"], Json::array());
}

// A device and jobs that come and go, seen about once a second; each point is compared with what happened between the
// two reports that count: the first ones after the step's beginning and after its end.
TEST(History, PointsAreTheSumsOfTheirSteps) {
  Random random(2);
  History history;
  struct Seen {
    Nanoseconds at;
    DeviceStatus device;
  };
  std::vector<Seen> counted;
  DeviceStatus device{.name = "gpu0"};
  Nanoseconds now = 0;
  std::int64_t step = -1;
  for (int i = 0; i < 6000; ++i) {
    now += random.between(300'000'000, 1'600'000'000);
    if (random.chance(0.05) && device.jobs.size() < 6) {
      device.jobs.push_back(job(std::to_string(i), 0));
    }
    if (random.chance(0.04) && !device.jobs.empty()) device.jobs.erase(device.jobs.begin());
    for (JobStatus& one : device.jobs) {
      const Nanoseconds used = random.between(0, 100'000'000);
      one.age += random.between(0, 1'000'000'000);
      one.counts.used += used;
      one.counts.grants += random.between(0, 9);
      one.counts.preemptions += random.between(0, 2);
      one.held_bytes = random.between(0, 1 << 30);
      if (random.chance(0.5)) one.waits = Percentiles{random.between(0, kSecond), kSecond};
      device.busy += used;
      device.turns += 3;
    }
    device.used_bytes = random.between(0, 1 << 30);
    if (now / History::kStep != step) counted.push_back({now, device});
    step = now / History::kStep;
    DaemonStatus status{.age = now, .devices = {device}};
    history.add(status);
    const Json json = history.json(history.last_step() - 1);
    if (counted.size() < 2) continue;
    const Seen& begin = counted[counted.size() - 2];
    const Seen& end = counted.back();
    const double seconds = static_cast<double>(end.at - begin.at) / 1e9;
    const Json& shown = json["devices"][0];
    ASSERT_EQ(shown["utilisation"].size(), 1u);
    ASSERT_EQ(shown["from"], end.at / History::kStep - 1);
    expect_near(shown["utilisation"][0], to_seconds(end.device.busy - begin.device.busy) / seconds);
    expect_near(shown["turns_per_second"][0],
                static_cast<double>(end.device.turns - begin.device.turns) / seconds);
    EXPECT_EQ(shown["used_bytes"][0], end.device.used_bytes);
    std::map<std::string, Json> jobs;
    for (const Json& one : json["jobs"]) jobs[one["identity"].get<std::string>()] = one;
    EXPECT_EQ(jobs.size(), end.device.jobs.size());
    for (const JobStatus& one : end.device.jobs) {
      const auto& before = begin.device.jobs;
      const auto former = std::find_if(before.begin(), before.end(), [&](const JobStatus& other) {
        return other.identity == one.identity;
      });
      const JobCounts began = former == before.end() ? JobCounts() : former->counts;
      const Json& point = jobs.at(one.identity);
      ASSERT_EQ(point["fraction"].size(), 1u);
      expect_near(point["fraction"][0], to_seconds(one.counts.used - began.used) / seconds);
      expect_near(point["turns_per_second"][0],
                  static_cast<double>(one.counts.grants - began.grants) / seconds);
      expect_near(point["pauses_per_second"][0],
                  static_cast<double>(one.counts.preemptions - began.preemptions) / seconds);
      EXPECT_EQ(point["held_bytes"][0], one.held_bytes);
      EXPECT_EQ(point["wait_p50_seconds"][0].is_null(), !one.waits.has_value());
      if (one.waits) expect_near(point["wait_p50_seconds"][0], to_seconds(one.waits->p50));
      EXPECT_TRUE(point["request_p95_seconds"][0].is_null()) << "it never said anything";
    }
  }
}

TEST(History, KeepsAnHour) {
  History history;
  for (std::int64_t step = 0; step <= 2000; ++step) {
    DaemonStatus status = daemon(step * History::kStep, {job("a", step * History::kStep)});
    status.devices[0].used_bytes = step;
    status.devices[0].jobs[0].held_bytes = step;
    history.add(status);
  }
  const Json json = history.json();
  EXPECT_EQ(json["last_step"], 1999);
  for (const Json& values : {json["devices"][0]["used_bytes"], json["jobs"][0]["held_bytes"]}) {
    ASSERT_EQ(values.size(), 720u);
    for (std::size_t i = 0; i < 720; ++i) EXPECT_EQ(values[i], 2000 - 719 + i);
  }
  EXPECT_EQ(json["devices"][0]["from"], 1999 - 719);
  EXPECT_EQ(720 * kStepSeconds, 3600);
}

TEST(History, GivesWhatCameAfterAStep) {
  History history;
  for (std::int64_t step = 0; step <= 100; ++step) history.add(daemon(step * History::kStep));
  const auto sizes = [&](std::int64_t after) {
    const Json device = history.json(after)["devices"][0];
    EXPECT_EQ(device["from"].get<std::int64_t>() + device["used_bytes"].size(), 100);
    return device["used_bytes"].size();
  };
  EXPECT_EQ(sizes(-1), 100u);
  EXPECT_EQ(sizes(INT64_MIN), 100u);
  EXPECT_EQ(sizes(89), 10u);
  EXPECT_EQ(sizes(99), 0u);
  EXPECT_EQ(sizes(INT64_MAX), 0u);
}

TEST(History, StepsWithoutAReportHaveTheMean) {
  History history;
  history.add(daemon(0));
  DaemonStatus later = daemon(10 * History::kStep);
  later.devices[0].busy = 5 * History::kStep;
  history.add(later);
  const Json values = history.json()["devices"][0]["utilisation"];
  EXPECT_EQ(values.size(), 10u);
  for (const Json& value : values) expect_near(value, 0.5);
}

// Else the memory of the daemon would be what jobs make of it.
TEST(History, OfAtMostSoManyJobs) {
  History history;
  std::vector<JobStatus> jobs;
  for (int i = 0; i < 1000; ++i) jobs.push_back(job(std::to_string(1000 + i), 0));
  history.add(daemon(0, jobs));
  EXPECT_EQ(history.json()["jobs"].size(), History::kMostJobs);
  EXPECT_EQ(history.json()["jobs_left_out"], 1000 - History::kMostJobs);
  // They leave, and others take their places once they have.
  jobs.erase(jobs.begin(), jobs.begin() + 500);
  for (JobStatus& one : jobs) one.age = History::kStep;
  history.add(daemon(History::kStep, jobs));
  history.add(daemon(2 * History::kStep, jobs));
  EXPECT_EQ(history.json()["jobs"].size(), History::kMostJobs);
  EXPECT_EQ(history.json()["jobs_left_out"], 500 - History::kMostJobs);
  history.add(daemon(3 * History::kStep));
  EXPECT_EQ(history.json()["jobs"], Json::array());
}

// What a job did before it had a place does not count as done in one step.
TEST(History, AJobThatGetsAPlaceLateBeginsThen) {
  History history;
  std::vector<JobStatus> jobs;
  for (std::size_t i = 0; i <= History::kMostJobs; ++i) {
    jobs.push_back(job(std::to_string(1000 + i), 0));
  }
  history.add(daemon(0, jobs));
  jobs = {jobs.back()};
  jobs[0].counts.used = 100 * History::kStep;
  for (std::int64_t step = 1; step <= 3; ++step) {
    jobs[0].age = 1000 * kSecond;
    jobs[0].counts.used += History::kStep / 2;
    history.add(daemon(step * History::kStep, jobs));
  }
  const Json shown = history.json()["jobs"][0];
  ASSERT_EQ(shown["fraction"].size(), 1u);
  expect_near(shown["fraction"][0], 0.5);
}

TEST(History, AJobThatComesAgainBeginsAnew) {
  History history;
  JobStatus one = job("a", kSecond);
  one.counts.grants = 50;
  history.add(daemon(0));
  history.add(daemon(History::kStep, {one}));
  one.counts.grants = 10;  // another connection with the same identity
  history.add(daemon(2 * History::kStep, {one}));
  const Json shown = history.json()["jobs"][0]["turns_per_second"];
  ASSERT_EQ(shown.size(), 1u);
  expect_near(shown[0], 2);
}

}  // namespace
}  // namespace regen::share
