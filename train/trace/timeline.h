#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ringtape {

// What one rank did in one training step. Times are nanoseconds of its steady clock, or of the step after together().
// On a GPU they are the host's times, when it submitted the work.
struct RankTimeline {
  struct Span {
    std::string name;  // "forward", "backward", "wait" (for gradients in transit), "optimizer"
    int64_t begin = 0, end = 0;
  };
  struct Bucket {
    int64_t bytes = 0;
    int64_t ready = 0, begin = 0, end = 0;  // its gradients complete; its transfer started; its result back
  };
  std::string clock;  // identifies the clock: equal texts mean the same clock
  std::vector<Span> phases;
  std::vector<Bucket> buckets;

  std::string text() const;  // for sending to other processes; parse() reads it
  static RankTimeline parse(const std::string& text);
};

// One step on all ranks; times count from its start.
struct StepTimeline {
  std::string title;
  int64_t step = 0;
  std::vector<RankTimeline> ranks;

  int64_t end() const;  // the end of the last phase or bucket
};

// Shifts the times of the ranks to the start of the step. Ranks with the same clock keep their relative times; between
// different clocks, the only assumption is that all start the step together.
StepTimeline together(const std::string& title, int64_t step, std::vector<RankTimeline> ranks);

// For chrome://tracing and ui.perfetto.dev: one process per rank, with a thread for computation and one for
// communication.
std::string chrome_trace(const StepTimeline& timeline);
std::string timeline_picture(const StepTimeline& timeline);  // SVG

}  // namespace ringtape
