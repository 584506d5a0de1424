#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace ringtape {

// A progress bar on standard error: `epoch 1/5:  42%|####      | 164/391 [00:12<00:17, 13.3 batches/s, loss 1.23]`.
// Drawn at most ten times per second, in the terminal's width; not at all if standard error is not a terminal.
class Progress {
 public:
  Progress(std::string title, int64_t total, bool enabled = true, const char* unit = "batches");
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether update() would draw now; ask first if the note is expensive to make.
  bool due();
  void update(int64_t done, const std::string& note = {});

 private:
  using Clock = std::chrono::steady_clock;
  std::string title_;
  int64_t total_;
  const char* unit_;
  bool enabled_, drawn_ = false, color_ = false, unicode_ = false;
  Clock::time_point begin_, next_;
};

// The bar's text for a line of `width` columns; without line ends or colours.
std::string progress_text(const std::string& title, int64_t done, int64_t total, double seconds,
                          const std::string& note, int width, bool unicode, const char* unit = "batches");

}  // namespace ringtape
