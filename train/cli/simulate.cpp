#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "comm/bench/goodput.h"
#include "core/registry.h"
#include "core/text.h"
#include "train/cli/common.h"
#include "train/io/json.h"

namespace ringtape::cli {
namespace {

using comm::FailingJob;
using comm::Goodput;
using comm::Recovery;

constexpr double kDay = 86400, kHour = 3600;
constexpr int64_t kRanks = 4096, kIsland = 8;
constexpr double kHours = 1000;
constexpr double kMostFailures = 1e8;  // takes a minute

// A flag for a time of the job, in seconds.
struct Time {
  const char *name, *help;
  double FailingJob::*value;
  double least = 0;
};
const Time kTimes[] = {
    {"step", "time of a training step", &FailingJob::step},
    {"checkpoint", "restart: time to save a checkpoint", &FailingJob::save, 0.001},
    {"restart", "restart: from a failure until the job runs again", &FailingJob::restart},
    {"detect", "live: from a failure until the others know", &FailingJob::detect},
    {"regroup", "live: pause until the others go on", &FailingJob::regroup},
    {"join", "live: pause when the ranks of a new node join", &FailingJob::join},
    {"replace", "live: from a failure until a new node joins", &FailingJob::replace},
};

// The parts of the lost time.
struct Loss {
  const char* name;
  double Goodput::*seconds;
};
const Loss kLosses[] = {{"saving", &Goodput::saving},         {"redone", &Goodput::redone},
                        {"restarting", &Goodput::restarting}, {"regrouping", &Goodput::regrouping},
                        {"joining", &Goodput::joining},       {"missing", &Goodput::missing}};

struct Policy {
  const char* name;
  Recovery recovery;
};
constexpr Policy kPolicies[] = {{"restart", Recovery::restart}, {"live", Recovery::live}};

struct Simulation {
  FailingJob job;
  int64_t ranks, island;
  double hours;
  uint64_t seed;
  std::vector<Policy> policies;
};

std::vector<Policy> policies_of(const Invocation& invocation) {
  const std::string* const name = invocation.flag("policy");
  if (!name || *name == "both") return {std::begin(kPolicies), std::end(kPolicies)};
  check_known("policy", *name, std::vector<std::string>{"restart", "live", "both"});
  return {kPolicies[*name == "live"]};
}

Simulation simulation_of(const Invocation& invocation) {
  Simulation s{.job = {},
               .ranks = number_flag<int64_t>(invocation, "ranks", 1, 10'000'000, kRanks),
               .island = number_flag<int64_t>(invocation, "island", 1, 10'000'000, kIsland),
               .hours = number_flag(invocation, "hours", 0.001, 1e9, kHours),
               .seed = number_flag<uint64_t>(invocation, "seed", 0, UINT64_MAX, 1),
               .policies = policies_of(invocation)};
  FailingJob& job = s.job;
  RT_CHECK_AS(UsageError, s.ranks % s.island == 0, "--ranks ", s.ranks, ": expected a multiple of --island ", s.island,
              ", the ranks of a node");
  job.nodes = s.ranks / s.island;
  job.failures = number_flag(invocation, "failures-per-node-day", 0.0, 1e9, kDay * job.failures) / kDay;
  for (const Time& time : kTimes)
    job.*time.value = number_flag(invocation, time.name, time.least, 1e9, job.*time.value);
  if (invocation.flag("checkpoint-every-s"))
    job.interval = number_flag(invocation, "checkpoint-every-s", 0.001, 1e9, job.interval);
  for (const Policy& policy : s.policies)
    RT_CHECK_AS(UsageError, policy.recovery == Recovery::restart || job.nodes > 1, "--policy live: ", s.ranks,
                " ranks in islands of ", s.island,
                " are one node, without others that go on; give --policy restart or a smaller --island");
  const double failures = double(job.nodes) * job.failures * s.hours * kHour;
  RT_CHECK_AS(UsageError, failures <= kMostFailures, "--hours ", s.hours, ": ",
              fmt::format("about {:.3g} failures are too many to simulate, {:g} are", failures, kMostFailures),
              " possible; give fewer hours");
  return s;
}

std::string interval_text(const FailingJob& job) {
  if (job.interval > 0) return fmt::format("a checkpoint every {:g} s of work", job.interval);
  if (job.failures == 0) return "no checkpoints, since nothing fails";
  return fmt::format("a checkpoint every {:.0f} s of work, the best interval", comm::best_interval(job));
}

void print_table(const Simulation& s, const std::vector<Goodput>& all) {
  const double rate = s.job.failures * double(s.job.nodes);
  fmt::print("{} ranks on {} nodes, {}; {:g} h simulated, seed {}; lost hours:\n\n", with_commas(s.ranks),
             with_commas(s.job.nodes),
             rate > 0 ? fmt::format("a failure every {:.3g} h", 1 / rate / kHour) : "no failures", s.hours, s.seed);
  fmt::print("{:<8}{:>10}{:>11}{:>11}", "policy", "goodput %", "formula %", "failures");
  for (const Loss& loss : kLosses) fmt::print("  {:>8}", loss.name);
  for (size_t i = 0; i < all.size(); ++i) {
    const Policy& policy = s.policies[i];
    fmt::print("\n{:<8}{:>10.2f}{:>11.2f}{:>11}", policy.name, 100 * all[i].share(),
               100 * comm::goodput_by_formula(s.job, policy.recovery), with_commas(all[i].failures));
    for (const Loss& loss : kLosses)
      fmt::print("  {:>{}.2f}", all[i].*loss.seconds / kHour, std::max<size_t>(8, std::strlen(loss.name)));
  }
  fmt::print("\n\n");
  if (s.policies[0].recovery == Recovery::restart) fmt::print("restart: {}\n", interval_text(s.job));
}

Json json_of(const Simulation& s, const std::vector<Goodput>& all) {
  Json out{{"ranks", s.ranks},
           {"island", s.island},
           {"failures_per_node_day", s.job.failures * kDay},
           {"hours", s.hours},
           {"seed", s.seed}};
  for (const Time& time : kTimes) out[concat(time.name, "_s")] = s.job.*time.value;
  out["checkpoint_every_s"] = s.job.interval > 0 ? s.job.interval : comm::best_interval(s.job);
  Json& policies = out["policies"] = Json::object();
  for (size_t i = 0; i < all.size(); ++i) {
    Json& row = policies[s.policies[i].name] = {{"goodput", all[i].share()},
                                                {"formula", comm::goodput_by_formula(s.job, s.policies[i].recovery)},
                                                {"failures", all[i].failures}};
    for (const Loss& loss : kLosses) row[concat(loss.name, "_s")] = all[i].*loss.seconds;
  }
  return out;
}

int run_simulate_training(const Invocation& invocation) {
  const Simulation s = simulation_of(invocation);
  std::vector<Goodput> all;
  for (const Policy& policy : s.policies)
    all.push_back(comm::simulate_goodput(s.job, policy.recovery, s.hours * kHour, s.seed));
  if (invocation.has("json")) fmt::print("{}\n", json_of(s, all).text(2));
  else print_table(s, all);
  return 0;
}

}  // namespace

Command simulate_training_command() {
  const FailingJob defaults;
  Command command;
  command.name = "simulate training";
  command.summary =
      "Simulates a job whose nodes fail at random: which part of its time is progress if it restarts from checkpoints, "
      "and if it is elastic.";
  command.usage = "[FLAGS]";
  command.examples = {"simulate training --ranks 1024",
                      "simulate training --ranks 64 --island 1 --failures-per-node-day 24 --policy live"};
  command.flags = {
      {"Job", "ranks", "N", "number of ranks", text(kRanks)},
      {"Job", "island", "N", "ranks of a node, which fail together", text(kIsland)},
      {"Job", "failures-per-node-day", "N", "failures of a node in a day",
       fmt::format("{:g}", kDay * defaults.failures)},
      {"Job", "policy", "NAME", "what follows a failure: restart, live (launch --elastic) or both", "both"},
      {"Job", "checkpoint-every-s", "SECONDS", "restart: work between two checkpoints", "the best"},
  };
  for (const Time& time : kTimes)
    command.flags.push_back({"Times", time.name, "SECONDS", time.help, text(defaults.*time.value)});
  command.flags.insert(command.flags.end(), {{"Simulation", "hours", "HOURS", "simulated time", text(kHours)},
                                             {"Simulation", "seed", "N", "seed of the failures", "1"},
                                             {"Output", "json", "", "print one JSON object", ""}});
  command.run = run_simulate_training;
  return command;
}

}  // namespace ringtape::cli
