// `simulate training`: the simulated share of progress against formulas, and its command.
#include "comm/bench/goodput.h"

#include <cmath>
#include <limits>

#include "tests/support/cli_command.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

using comm::FailingJob;
using comm::Goodput;
using comm::Recovery;

// Simulated until there are about `failures`.
Goodput simulated(const FailingJob& job, Recovery recovery, double failures = 20'000) {
  return comm::simulate_goodput(job, recovery, failures / (job.failures * double(job.nodes)), 1);
}

void expect_formula(const FailingJob& job, Recovery recovery) {
  const Goodput g = simulated(job, recovery);
  EXPECT_GE(g.failures, 1000);
  EXPECT_NEAR(g.share() / comm::goodput_by_formula(job, recovery), 1, 0.01) << job.nodes << " nodes";
  EXPECT_NEAR(g.total() * job.failures * double(job.nodes), 20'000, 1e-3);
}

TEST(Goodput, RestartAgreesWithItsFormula) {
  for (const int64_t nodes : {8, 512, 8192}) {
    FailingJob job{.nodes = nodes};
    expect_formula(job, Recovery::restart);
    job.interval = comm::best_interval(job) / 3;
    expect_formula(job, Recovery::restart);
  }
  expect_formula({.nodes = 64, .failures = 1.0 / 3600, .save = 2, .restart = 30}, Recovery::restart);
}

TEST(Goodput, LiveAgreesWithItsFormula) {
  for (const int64_t nodes : {8, 512, 8192}) expect_formula({.nodes = nodes}, Recovery::live);
  const FailingJob spot{.nodes = 64, .failures = 1.0 / 3600, .step = 0.5, .detect = 1, .regroup = 1, .join = 0.5,
                        .replace = 120};
  expect_formula(spot, Recovery::live);
  // For rare failures: all stops and the missing nodes, each by itself.
  const FailingJob rare{.nodes = 512};
  const double stops = 512 * rare.failures * (10 + 5 + 1.5 * 2 + 5), missing = 1800 * rare.failures;
  EXPECT_NEAR(comm::goodput_by_formula(rare, Recovery::live), (1 - stops) * (1 - missing), 1e-5);
}

TEST(Goodput, TheBestIntervalIsTheBest) {
  for (const double save : {0.001, 30.0, 3000.0}) {
    FailingJob job{.nodes = 512, .save = save};
    const double best = comm::best_interval(job), most = comm::goodput_by_formula(job, Recovery::restart);
    for (const double factor : {0.9, 1.1}) {
      job.interval = factor * best;
      EXPECT_LT(comm::goodput_by_formula(job, Recovery::restart), most);
    }
  }
  const FailingJob rare{.nodes = 1, .failures = 1e-9};
  EXPECT_NEAR(comm::best_interval(rare) / std::sqrt(2 * 30 / 1e-9), 1, 1e-3);  // Young's
}

TEST(Goodput, WithoutFailuresOnlyCheckpointsTakeTime) {
  FailingJob job{.failures = 0};
  EXPECT_EQ(comm::best_interval(job), std::numeric_limits<double>::infinity());
  for (const Recovery recovery : {Recovery::restart, Recovery::live}) {
    EXPECT_EQ(comm::simulate_goodput(job, recovery, 1000, 1).share(), 1);
    EXPECT_EQ(comm::goodput_by_formula(job, recovery), 1);
  }
  job.interval = 70;
  const Goodput g = comm::simulate_goodput(job, Recovery::restart, 1000, 1);
  EXPECT_EQ(g.saving, 300);
  EXPECT_EQ(g.progress, 700);
  EXPECT_EQ(comm::goodput_by_formula(job, Recovery::restart), 0.7);
}

TEST(Goodput, MoreFailuresThanProgress) {
  const FailingJob often{.nodes = 512, .failures = 0.1};
  const Goodput restart = simulated(often, Recovery::restart), live = simulated(often, Recovery::live);
  EXPECT_EQ(restart.progress, 0);
  EXPECT_LT(live.share(), 1e-3);
  EXPECT_LT(comm::goodput_by_formula(often, Recovery::restart), 1e-9);
  EXPECT_LT(comm::goodput_by_formula(often, Recovery::live), 1e-3);
  // Two nodes that are both away at some time: what they did before is lost.
  const FailingJob two{.nodes = 2, .failures = 1.0 / 3600};
  const Goodput g = simulated(two, Recovery::live, 1000);
  EXPECT_GT(g.redone, 0.2 * g.total());
  EXPECT_LT(g.share(), 0.05);
}

TEST(Goodput, TheSeedDecides) {
  const auto share = [](uint64_t seed) { return comm::simulate_goodput({}, Recovery::live, 3.6e6, seed).share(); };
  EXPECT_EQ(share(1), share(1));
  EXPECT_NE(share(1), share(2));
}

TEST_F(CliTest, SimulatesTraining) {
  const CliResult table = run("simulate training");
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_MENTIONS(table.out, "4,096 ranks on 512 nodes, a failure every 7.21 h; 1000 h simulated, seed 1; lost");
  EXPECT_MENTIONS(table.out, "\nrestart ");
  EXPECT_MENTIONS(table.out, "\nlive ");
  EXPECT_MENTIONS(table.out, "restart: a checkpoint every 1");
  const Json both = parse_json(run("simulate training --json --restart 60").out);
  const Json& policies = both["policies"];
  EXPECT_EQ(both["restart_s"], 60);
  for (const char* name : {"restart", "live"}) {
    const auto goodput = policies[name]["goodput"].get<double>();
    EXPECT_NEAR(goodput, policies[name]["formula"].get<double>(), 0.02);
    EXPECT_MENTIONS(run(concat("simulate training --restart 60 --policy ", name)).out,
                    concat(int(100 * goodput), "."));
  }
  const CliResult live = run("simulate training --policy live --failures-per-node-day 0");
  EXPECT_MENTIONS(live.out, "no failures");
  EXPECT_MENTIONS(live.out, "100.00");
  EXPECT_EQ(live.out.find("restart:"), std::string::npos);
}

TEST_F(CliTest, SimulatesNoTrainingThatCannotBe) {
  expect_error("simulate", 2, "training");
  expect_error("simulate training --ranks 12", 2, "--ranks 12: expected a multiple of --island 8");
  expect_error("simulate training --ranks 8", 2, "are one node");
  expect_error("simulate training --policy dead", 2, "policy 'dead'");
  expect_error("simulate training --step -1", 2, "--step: expected a number from 0");
  expect_error("simulate training --checkpoint 0", 2, "--checkpoint: expected a number from 0.001");
  expect_error("simulate training --checkpoint-every-s 0", 2, "--checkpoint-every-s: expected a number from 0.001");
  expect_error("simulate training --failures-per-node-day nan", 2, "--failures-per-node-day: expected a number");
  expect_error("simulate training --failures-per-node-day 1e9", 2, "too many to simulate");
}

}  // namespace
}  // namespace ringtape
