#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "train/inference/predictor.h"

namespace ringtape {

struct BatchOptions {
  size_t size = 32;                   // images that are computed together, at most
  std::chrono::milliseconds wait{0};  // for more of them, once one is there
};

// What a file shows, or why it cannot be read.
struct Answer {
  Predictions best = {};
  std::string error = {};
};

// Answers the files of many threads together: those that came while the answers before were computed, and within
// options.wait. One thread computes, with threads() of the thread that made this.
class Batcher {
 public:
  // `answer` gets files and returns as many answers. What it throws, each that waits for them gets.
  using Answering = std::function<std::vector<Answer>(std::span<const std::string_view> files)>;
  Batcher(Answering answer, const BatchOptions& options);
  ~Batcher();  // after the last ask()
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // In the order of the files. From any thread; waits.
  std::vector<Answer> ask(std::span<const std::string_view> files);
  size_t waiting() const;  // files whose answers are not computed yet

 private:
  struct Waiting;
  void compute();
  std::vector<Waiting*> next_batch();  // empty: no more will come

  const Answering answer_;
  const BatchOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable more_, done_;
  std::deque<Waiting*> waiting_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ringtape
