#pragma once
#include <cstdint>

// The part of a job's time that is progress when its nodes fail at random: simulated, and by formulas.
namespace ringtape::comm {

// What a failed node ends. Restart: all ranks, which start again from the newest checkpoint. Live: its own ranks; the
// others go on without them, and new ones join.
enum class Recovery : uint8_t { restart, live };

// Times in seconds. Every node lives for a time of its own, exponentially distributed.
struct FailingJob {
  int64_t nodes = 512;
  double failures = 6.5e-3 / 86400;  // of a node, per second
  double step = 2;
  // Restart. A new node is there from the failure on.
  double save = 30, interval = 0;  // of a checkpoint; of work between two, 0: the best one
  double restart = 600;            // from a failure until the job runs; a failure within begins it anew
  // Live. What a failed step loses is taken as 1.5 steps: its own and half of the next one.
  double detect = 10, regroup = 5, join = 5;  // the last two: pauses of all when ranks are lost and when they join
  double replace = 1800;                      // from a failure until the node joins again
};

// Seconds by what they were spent on; the sum is the simulated time. Restart: progress, saving, redone, restarting.
// Live: progress, redone, regrouping, joining, missing.
struct Goodput {
  double progress = 0;
  double saving = 0;
  double redone = 0;      // work that a failure lost
  double restarting = 0;  // from a failure until the job runs
  double regrouping = 0;  // from a failure until the others go on
  double joining = 0;
  double missing = 0;  // the share of the ranks that are not there, while the others work
  int64_t failures = 0;

  double total() const { return progress + saving + redone + restarting + regrouping + joining + missing; }
  double share() const { return progress / total(); }
};

// The interval with the largest goodput_by_formula; infinite if nothing fails.
double best_interval(const FailingJob& job);

// By events, for this many seconds. It depends only on the arguments. A live job keeps no checkpoints: when no node is
// left, all its progress is lost.
Goodput simulate_goodput(const FailingJob& job, Recovery recovery, double seconds, uint64_t seed);

// Expected share of progress. With L the failures of all nodes per second:
// - restart: L t / (exp(L R) (exp(L (t + C)) - 1)) for t seconds of work, a checkpoint of C, a restart of R (Daly, "A
//   higher order estimate of the optimum checkpoint interval for restart dumps", 2006);
// - live: a exp(-a L (D + G + 1.5 S + J)), where a = 1 / (1 + f W) of the nodes are there; for rare failures that is
//   (1 - L (D + G + 1.5 S + J)) (1 - f W). D: detect, G: regroup, S: step, J: join, W: replace, f: failures of a node.
double goodput_by_formula(const FailingJob& job, Recovery recovery);

}  // namespace ringtape::comm
