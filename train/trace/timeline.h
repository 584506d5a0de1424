#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ringtape {

// What one rank did in one training step. Times are nanoseconds of its steady clock, until together() has made them
// those of the step. On a GPU they are the host's: when it handed work over.
struct RankTimeline {
  struct Span {
    std::string name;  // "forward", "backward", "wait" for gradients on their way, "optimizer"
    int64_t begin = 0, end = 0;
  };
  struct Bucket {
    int64_t bytes = 0;
    int64_t ready = 0, begin = 0, end = 0;  // its gradients were complete; it was sent; it was back
  };
  std::string clock;  // the same text where the clock is
  std::vector<Span> phases;
  std::vector<Bucket> buckets;

  std::string text() const;  // for other processes; parse() reads it
  static RankTimeline parse(const std::string& text);
};

// The step of a training, by rank, from its begin on.
struct StepTimeline {
  std::string title;
  int64_t step = 0;
  std::vector<RankTimeline> ranks;

  int64_t end() const;  // of its last phase or bucket
};

// Ranks with one clock stay as they are to each other; of different clocks nothing is known
// but that the step begins on all together.
StepTimeline together(const std::string& title, int64_t step, std::vector<RankTimeline> ranks);

// For chrome://tracing and ui.perfetto.dev: a process a rank, with a thread that computes and one that communicates.
std::string chrome_trace(const StepTimeline& timeline);
std::string timeline_picture(const StepTimeline& timeline);  // SVG

}  // namespace ringtape
