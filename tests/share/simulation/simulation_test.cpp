// Replays against a naive simulator, and against what is known of queues.
#include "regen/share/simulation/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "regen/base/random.h"
#include "regen/share/simulation/summary.h"
#include "regen/share/simulation/trace_generator.h"
#include "tests/share/simulation/naive_simulator.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr std::array kAll{Policy::kPriority, Policy::kFair, Policy::kDeadline, Policy::kShortest,
                          Policy::kFcfs};

TraceJob job(double arrival, double seconds, std::int64_t priority = 0, double weight = 1) {
  return {.name = "job",
          .arrival = from_seconds(arrival),
          .points = {{0, from_seconds(seconds)}},
          .priority = priority,
          .weight = weight};
}

Replay run(const Trace& trace, const SimulationOptions& options) {
  auto result = replay(trace, options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(result).value();
}

std::vector<double> ends(const Trace& trace, const SimulationOptions& options) {
  std::vector<double> result;
  for (const JobRecord& record : run(trace, options).jobs) {
    result.push_back(static_cast<double>(record.finished) / 1e9);
  }
  return result;
}

// Small whole numbers, so that ties are frequent.
Trace tiny_trace(Random& random, Bytes device_bytes) {
  Trace trace;
  const auto count = random.between(1, 8);
  for (std::int64_t i = 0; i < count; ++i) {
    TraceJob made =
        job(static_cast<double>(random.between(0, 12)), static_cast<double>(random.between(1, 9)),
            random.between(0, 2), static_cast<double>(std::int64_t{1} << random.between(0, 2)));
    made.points[0].bytes = random.between(0, device_bytes);
    if (random.chance(0.5)) made.deadline = random.between(1, 30) * kSecond;
    trace.jobs.push_back(made);
  }
  return trace;
}

TEST(Simulation, AgreesWithTheNaiveSimulator) {
  Random random(21);
  for (int round = 0; round < 1500; ++round) {
    const Trace trace = tiny_trace(random, 10);
    SimulationOptions options{.devices = random.between(1, 3),
                              .device_bytes = random.between(10, 30),
                              .turn = random.between(1, 4) * kSecond};
    for (const Policy policy : kAll) {
      options.policy = policy;
      const Replay replayed = run(trace, options);
      const auto expected = naive_ends(trace, options);
      for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
        ASSERT_EQ(replayed.jobs[i].finished, expected[i] * kSecond)
            << to_string(policy) << " round " << round << " job " << i << ", " << options.devices
            << " devices of " << options.device_bytes << ", turn " << options.turn << "\n"
            << write_trace_json(trace);
        EXPECT_EQ(replayed.jobs[i].used, least_time(trace.jobs[i]));
      }
    }
  }
}

TEST(Simulation, ShortestRemainingHasTheLeastMeanOnOneDevice) {
  Random random(22);
  for (int round = 0; round < 300; ++round) {
    const Trace trace = tiny_trace(random, 0);
    const auto mean = [&](Policy policy) {
      return summarize(trace, run(trace, {.policy = policy}), policy).completion.mean;
    };
    const double least = mean(Policy::kShortest);
    for (const Policy policy : kAll) EXPECT_LE(least, mean(policy) + 1e-9) << to_string(policy);
  }
}

TEST(Simulation, NoDeviceIdlesWhileThereIsWork) {
  Random random(23);
  for (int round = 0; round < 300; ++round) {
    const Trace trace = tiny_trace(random, 0);
    // On one device the end of all is that of any order without idling.
    std::vector<const TraceJob*> order;
    for (const TraceJob& each : trace.jobs) order.push_back(&each);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->arrival < b->arrival; });
    Nanoseconds last = 0;
    for (const TraceJob* each : order) last = std::max(last, each->arrival) + least_time(*each);
    for (const Policy policy : kAll) {
      const Replay replayed = run(trace, {.policy = policy});
      Nanoseconds found = 0;
      for (const JobRecord& record : replayed.jobs) found = std::max(found, record.finished);
      EXPECT_EQ(found, last) << to_string(policy);
    }
  }
}

// Exponential arrivals and services: the mean time in the system is 1 / (service - arrival rate),
// for first come first served and, since services have no memory, for equal sharing.
TEST(Simulation, MeansOfTheClassicalQueue) {
  for (const double load : {0.3, 0.6}) {
    Random random(24);
    const auto exponential = [&](double mean) { return -mean * std::log1p(-random.real()); };
    Trace trace;
    double now = 0;
    constexpr int kJobs = 60'000;
    constexpr int kInGroup = kJobs / 30;
    for (int i = 0; i < kJobs; ++i) {
      now += exponential(1 / load);
      trace.jobs.push_back(job(now, std::max(1e-9, exponential(1))));
    }
    const double expected = 1 / (1 - load);
    for (const Policy policy : {Policy::kFcfs, Policy::kFair}) {
      const Replay replayed = run(trace, {.policy = policy, .turn = kSecond / 20});
      // Means of thirty groups are nearly independent: their spread says how far off all may be.
      std::vector<double> groups(30);
      for (int i = 0; i < kJobs; ++i) {
        const Nanoseconds took = replayed.jobs[i].finished - trace.jobs[i].arrival;
        groups[i / kInGroup] += to_seconds(took) / kInGroup;
      }
      const double mean = std::accumulate(groups.begin(), groups.end(), 0.0) / 30;
      double variance = 0;
      for (const double group : groups) variance += (group - mean) * (group - mean) / 29;
      EXPECT_NEAR(mean, expected, 4 * std::sqrt(variance / 30)) << to_string(policy) << load;
      EXPECT_NEAR(mean, expected, 0.1 * expected) << "the spread itself is small";
    }
  }
}

TEST(Simulation, SharesFollowWeights) {
  // Weights 1 and 3 with turns of a second: of the first 40 s the heavy one gets 30.
  const Trace trace{{job(0, 100, 0, 1), job(0, 30, 0, 3)}};
  EXPECT_EQ(ends(trace, {.policy = Policy::kFair}), (std::vector<double>{130, 40}));
}

TEST(Simulation, HigherLevelsDoNotNoticeLowerOnes) {
  Random random(25);
  for (int round = 0; round < 200; ++round) {
    Trace trace = tiny_trace(random, 0);
    Trace high;
    for (const TraceJob& each : trace.jobs) {
      if (each.priority == 2) high.jobs.push_back(each);
    }
    if (high.jobs.empty()) continue;
    const auto alone = ends(high, {});
    const auto together = ends(trace, {});
    std::vector<double> found;
    for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
      if (trace.jobs[i].priority == 2) found.push_back(together[i]);
    }
    EXPECT_EQ(found, alone);
  }
}

TEST(Simulation, AHolderGivesWayAtTheEndOfItsWindow) {
  // Asked at 1.25 s of its work, in quanta of half a second: the urgent job starts at 1.5 s.
  const Trace trace{{job(0, 10), job(1.25, 1, 1)}};
  EXPECT_EQ(ends(trace, {.quantum = kSecond / 2}), (std::vector<double>{11, 2.5}));
  EXPECT_EQ(ends(trace, {.quantum = 0}), (std::vector<double>{11, 2.25}));
  EXPECT_EQ(run(trace, {}).jobs[0].preemptions, 1);
}

TEST(Simulation, DeadlinesAndTheirMisses) {
  Trace trace{{job(0, 10), job(1, 2), job(2, 3)}};
  trace.jobs[0].deadline = 12 * kSecond;  // at 12
  trace.jobs[1].deadline = 3 * kSecond;   // at 4: runs 1-3
  // The last has none: it runs when the others are done, 12-15.
  EXPECT_EQ(ends(trace, {.policy = Policy::kDeadline}), (std::vector<double>{12, 3, 15}));
  const auto summary = [&](Policy policy) {
    return summarize(trace, run(trace, {.policy = policy}), policy);
  };
  EXPECT_EQ(summary(Policy::kDeadline).missed, 0);
  EXPECT_EQ(summary(Policy::kFcfs).missed, 1) << "the second, at 12";
  EXPECT_EQ(summary(Policy::kFcfs).deadlines, 2);
}

TEST(Simulation, JobsShrinkForANewcomerAndGrowBack) {
  // 100 bytes. Each job takes 80 bytes and 1 s a step, or 40 bytes and 2 s.
  TraceJob each = job(0, 1);
  each.steps = 10;
  each.points = {{80, kSecond}, {40, 2 * kSecond}};
  Trace trace{{each, each}};
  trace.jobs[1].arrival = 4 * kSecond;
  trace.jobs[1].priority = 1;
  // The first has done 4 steps; 6 remain, of 2 s each. The urgent one runs 20 s, from 4 to 24 (both
  // must shrink). Then the first grows back: its 6 steps take 6 s.
  EXPECT_EQ(ends(trace, {.device_bytes = 100}), (std::vector<double>{30, 24}));
  // One byte short of two small ones: the second waits for the first.
  EXPECT_EQ(ends(trace, {.device_bytes = 80 - 1}), (std::vector<double>{20, 40}));
  // Room for one small and one large: the urgent one keeps its size.
  EXPECT_EQ(ends(trace, {.device_bytes = 120}), (std::vector<double>{20, 14}));
}

TEST(Simulation, PlacementLooksAtMemoryThenAtLoad) {
  Trace trace{{job(0, 10), job(0, 5), job(1, 1), job(1, 1)}};
  trace.jobs[0].points[0].bytes = 50;
  trace.jobs[1].points[0].bytes = 90;
  trace.jobs[2].points[0].bytes = 50;  // beside the first: there is no room beside the second
  trace.jobs[3].points[0].bytes = 10;  // beside the second, which has less to do
  const Replay replayed = run(trace, {.policy = Policy::kFair, .devices = 2, .device_bytes = 100});
  EXPECT_EQ(replayed.jobs[2].device, replayed.jobs[0].device);
  EXPECT_EQ(replayed.jobs[3].device, replayed.jobs[1].device);
  EXPECT_NE(replayed.jobs[0].device, replayed.jobs[1].device);
}

TraceJob service(double request_seconds, double rate, std::int64_t requests) {
  TraceJob made = job(0, request_seconds, 1);
  made.kind = JobKind::kInference;
  made.steps = requests;
  made.rate = rate;
  return made;
}

TEST(Simulation, RequestsAreServedAtOnceBesideATraining) {
  // A request of 0.1 s each second, 10 of them; the training's 5 s are spread around them.
  const Trace trace{{service(0.1, 1, 10), job(0, 5)}};
  const Replay replayed = run(trace, {});
  ASSERT_EQ(replayed.requests.size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(replayed.requests[i].arrived, static_cast<Nanoseconds>(i) * kSecond);
    EXPECT_EQ(replayed.requests[i].finished - replayed.requests[i].arrived, kSecond / 10);
  }
  EXPECT_EQ(replayed.jobs[0].finished, 91 * kSecond / 10);
  EXPECT_EQ(replayed.jobs[1].finished, 56 * kSecond / 10) << "six requests came before its end";
  // Without sharing it has to wait until the service ends.
  EXPECT_EQ(ends(trace, {.policy = Policy::kFcfs})[1], 14.1);
}

TEST(Simulation, RequestsQueueWhenTheyComeTooFast) {
  // 2 a second, each of 1 s: the k-th waits k/2 s longer.
  const Replay replayed = run({{service(1, 2, 4)}}, {});
  std::vector<double> latencies;
  for (const RequestRecord& request : replayed.requests) {
    latencies.push_back(to_seconds(request.finished - request.arrived));
  }
  EXPECT_EQ(latencies, (std::vector<double>{1, 1.5, 2, 2.5}));
}

TEST(Simulation, EverythingAtOnceKeepsItsAccounts) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Trace trace =
        *make_trace({.jobs = 200, .devices = 5, .seed = seed, .load = 2, .mean_seconds = 20});
    for (const Policy policy : kAll) {
      const SimulationOptions options{.policy = policy, .devices = 5, .quantum = 1'000'000};
      const Replay replayed = run(trace, options);
      const Replay again = run(trace, options);
      Nanoseconds used = 0;
      std::int64_t requests = 0;
      for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
        const TraceJob& spec = trace.jobs[i];
        const JobRecord& record = replayed.jobs[i];
        const Nanoseconds rounding = spec.steps + 100;  // the times of steps are whole
        EXPECT_GE(record.used, least_time(spec) - rounding);
        EXPECT_LE(record.used, least_time(spec) * 7 / 5 + rounding) << "the slowest takes 1.4";
        EXPECT_GE(record.finished, spec.arrival + record.used);
        EXPECT_EQ(record.finished, again.jobs[i].finished);
        used += record.used;
        if (spec.kind == JobKind::kInference) requests += spec.steps;
      }
      EXPECT_EQ(used, std::accumulate(replayed.busy.begin(), replayed.busy.end(), Nanoseconds{0}));
      EXPECT_EQ(std::ssize(replayed.requests), requests);
    }
  }
}

TEST(Simulation, AThousandJobsOnAHundredDevices) {
  const Trace trace = *make_trace({.jobs = 1000, .devices = 100, .seed = 1, .load = 3});
  for (const Policy policy : kAll) {
    const Replay replayed = run(trace, {.policy = policy, .devices = 100});
    EXPECT_LT(replayed.events, 3'000'000) << "work for a second or two";
  }
}

TEST(Simulation, AJobThatFitsNoDeviceIsRefused) {
  Trace trace{{job(0, 1)}};
  trace.jobs[0].points[0].bytes = 2000;
  const auto refused = replay(trace, {.device_bytes = 1999});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("needs at least 2,000 bytes, expected at most the 1,999 of a device"));
}

TEST(Simulation, PercentilesAndFairness) {
  std::vector<double> values(100);
  std::iota(values.begin(), values.end(), 1);
  const Distribution found = distribution(values);
  EXPECT_EQ(found.p50, 50);
  EXPECT_EQ(found.p95, 95);
  EXPECT_EQ(found.p99, 99);
  EXPECT_EQ(found.most, 100);
  EXPECT_EQ(found.mean, 50.5);
  EXPECT_EQ(distribution({7}).p50, 7);
  // Speeds 1 and 1/2 on one device: (1.5)^2 / (2 * 1.25) = 0.9.
  const Trace trace{{job(0, 1), job(0, 1)}};
  EXPECT_DOUBLE_EQ(summarize(trace, run(trace, {.policy = Policy::kFcfs}), Policy::kFcfs).fairness,
                   0.9);
}

TEST(Trace, SurvivesBothFormats) {
  const Trace trace = *make_trace({.jobs = 50, .devices = 7, .seed = 9});
  const auto json = parse_trace(write_trace_json(trace), "json");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(*json, trace);
  const auto csv = parse_trace(write_trace_csv(trace), "csv");
  ASSERT_TRUE(csv.ok()) << csv.error().message;
  EXPECT_EQ(csv->jobs, trace.jobs);
  EXPECT_EQ(*make_trace({.jobs = 50, .devices = 7, .seed = 9}), trace);
  EXPECT_NE(*make_trace({.jobs = 50, .devices = 7, .seed = 10}), trace);
}

TEST(Trace, GeneratedLoadIsWhatWasAskedFor) {
  const Trace trace =
      *make_trace({.jobs = 20000, .devices = 10, .load = 0.7, .tail = INFINITY, .inference = 0});
  double work = 0;
  for (const TraceJob& each : trace.jobs) work += to_seconds(least_time(each));
  EXPECT_NEAR(work / (10 * to_seconds(trace.jobs.back().arrival)), 0.7, 0.03);
  EXPECT_NEAR(work / 20000, 600, 20);
}

TEST(Trace, ShortFormsMeanWhatTheySay) {
  const auto csv = parse_trace("arrival,seconds,memory,steps\n1.5,10,2GiB,4\n\n0,1,,\n", "t");
  ASSERT_TRUE(csv.ok()) << csv.error().message;
  EXPECT_EQ(csv->jobs[0].points, (std::vector<MemoryPoint>{{Bytes{2} << 30, 5 * kSecond / 2}}));
  EXPECT_EQ(csv->jobs[1].name, "job 1");
  EXPECT_EQ(csv->jobs[1].steps, 1);
}

TEST(Trace, BadOnesAreOneLineThatSaysWhere) {
  const auto message = [](const std::string& text) {
    const auto trace = parse_trace(text, "t");
    EXPECT_FALSE(trace.ok()) << text;
    if (trace.ok()) return std::string();
    EXPECT_EQ(trace.error().message.find('\n'), std::string::npos);
    return trace.error().message;
  };
  const auto job_message = [&](const std::string& fields) {
    return message(R"({"format":"regen-trace","version":1,"jobs":[{)" + fields + "}]}");
  };
  EXPECT_THAT(message(""), HasSubstr("is empty"));
  EXPECT_THAT(message("arrival,seconds\n"), HasSubstr("no jobs"));
  EXPECT_THAT(message("arrival,secs\n0,1\n"), HasSubstr("line 1 has the column 'secs'"));
  EXPECT_THAT(message("arrival,arrival\n"), HasSubstr("twice"));
  EXPECT_THAT(message("arrival,seconds\n0,1,2\n"), HasSubstr("line 2 has 3 fields, expected 2"));
  EXPECT_THAT(message("arrival,seconds\n0,-1\n"), HasSubstr("line 2 seconds is '-1'"));
  EXPECT_THAT(message("arrival,seconds\n0,x\n"), HasSubstr("seconds is 'x'"));
  EXPECT_THAT(message("arrival,seconds\n0,nan\n"), HasSubstr("seconds is 'nan'"));
  EXPECT_THAT(message("arrival,seconds\n,1\n"), HasSubstr("has no arrival"));
  EXPECT_THAT(message("arrival\n1\n"), HasSubstr("has no seconds"));
  EXPECT_THAT(message("arrival,points\n0,5:1 7\n"), HasSubstr("has the point '7'"));
  EXPECT_THAT(message("arrival,points,seconds\n0,5:1,3\n"), HasSubstr("expected one of them"));
  EXPECT_THAT(message("arrival,seconds,kind\n0,1,both\n"), HasSubstr("kind is 'both'"));
  EXPECT_THAT(message("arrival,seconds,kind\n0,1,inference\n"), HasSubstr("without a rate"));
  EXPECT_THAT(message("arrival,seconds,rate\n0,1,5\n"), HasSubstr("training with a rate"));
  EXPECT_THAT(message("arrival,seconds,priority\n0,1,-1\n"), HasSubstr("priority is '-1'"));
  EXPECT_THAT(message("arrival,seconds,weight\n0,1,0\n"), HasSubstr("weight is '0'"));
  EXPECT_THAT(message("arrival,seconds,steps\n0,1,0\n"), HasSubstr("steps is '0'"));
  EXPECT_THAT(message("{"), HasSubstr("t: "));
  EXPECT_THAT(message("{}"), HasSubstr("format"));
  EXPECT_THAT(message("[]"), HasSubstr("t: "));
  EXPECT_THAT(job_message(R"("arrival":0)"), HasSubstr("jobs[0]"));
  EXPECT_THAT(job_message(R"("arrival":0,"seconds":0)"), HasSubstr("jobs[0].seconds: found 0"));
  EXPECT_THAT(job_message(R"("arrival":-1,"seconds":1)"), HasSubstr("jobs[0].arrival"));
  EXPECT_THAT(job_message(R"("arrival":0,"points":[])"), HasSubstr("found 0 points"));
  EXPECT_THAT(job_message(R"("arrival":0,"points":[[1]])"), HasSubstr("expected [bytes, seconds]"));
  EXPECT_THAT(job_message(R"("arrival":0,"points":[[1,0]])"), HasSubstr("above 0"));
  EXPECT_THAT(job_message(R"("arrival":0,"seconds":1,"speed":2)"), HasSubstr("speed"));
  EXPECT_THAT(job_message(R"("arrival":0,"seconds":1,"kind":"inference")"), HasSubstr("rate"));
  EXPECT_THAT(job_message(R"("arrival":0,"seconds":1,"kind":"inference","rate":0)"),
              HasSubstr("jobs[0].rate"));
  EXPECT_THAT(
      job_message(R"("arrival":0,"seconds":1,"kind":"inference","rate":1,"steps":900000000)"),
      HasSubstr("900000000 requests"));
  EXPECT_THAT(job_message(R"("arrival":0,"steps":1000000000,"points":[[0,10]])"),
              HasSubstr("take more than 4e+09 seconds of device time"));
}

}  // namespace
}  // namespace regen::share
