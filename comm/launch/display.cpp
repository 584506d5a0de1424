#include "comm/launch/display.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/launch/pipe.h"
#include "core/limits.h"
#include "core/text.h"

namespace ringtape::comm {

constexpr size_t kBound = 4u << 20;    // maximum of stored bytes of a stream
constexpr size_t kPortion = 16 << 10;  // bytes written at a time: a reader that takes this much counts as active
constexpr Seconds kLook{0.02}, kErasing{0.2};
constexpr const char* kErase = "\r\033[K";

static bool is_drawable(int fd) {
  const char* const terminal = std::getenv("TERM");
  return ::isatty(fd) != 0 && !(terminal && std::strcmp(terminal, "dumb") == 0);
}

// Whether standard output and error go to the same place, where lines must keep their order: a terminal, or after 2>&1.
static bool is_one_place() {
  struct stat first {
  }, second{};
  return (::isatty(1) && ::isatty(2)) || (::fstat(1, &first) == 0 && ::fstat(2, &second) == 0 &&
                                          first.st_dev == second.st_dev && first.st_ino == second.st_ino);
}

struct OutputPortion {
  int stream;
  std::string text;
  int64_t lines;
};

// The shared state of a writing thread and its Outlet; the thread may outlive the Outlet in a write that does not end.
struct OutputQueue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<OutputPortion> portions;  // the first stays until it is written
  size_t bytes = 0;
  Clock::time_point moved = Clock::now();  // when data was last written, or the first portion came
  std::string bar, drawn;
  bool writing = false, stop = false;
  int error = 0;  // errno of the first failed write to standard output, unless its reader had gone

  bool idle() const { return portions.empty() && bar == drawn && !writing; }
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !portions.empty() || bar != drawn || stop; });
      if (portions.empty() && bar == drawn) return;
      if (portions.empty()) draw(lock, bar);
      else write_first(lock);
    }
  }
  void draw(std::unique_lock<std::mutex>& lock, const std::string& text) {
    drawn = text;
    write(lock, 2, text.empty() ? kErase : concat("\r", text, "\033[K"));
  }
  void write_first(std::unique_lock<std::mutex>& lock) {
    if (!drawn.empty()) draw(lock, "");
    const OutputPortion first = portions.front();
    portions.front().stream = 0;  // no more lines are appended to it
    write(lock, first.stream, first.text);
    portions.pop_front();
    bytes -= first.text.size();
    moved = Clock::now();
  }
  // Lines that cannot be written are lost; the ranks continue.
  void write(std::unique_lock<std::mutex>& lock, int stream, const std::string& text) {
    writing = true;
    lock.unlock();
    const bool written = write_all(stream, text);
    const int reason = errno;
    lock.lock();
    if (!written && stream == 1 && reason != EPIPE && error == 0) error = reason;
    writing = false;
    changed.notify_all();
  }
};

class Display::Outlet {
 public:
  Outlet() : thread_(start_thread("what a launcher shows", [queue = queue_] { queue->run(); })) {}
  ~Outlet() {
    std::unique_lock lock(queue_->mutex);
    queue_->bar.clear();
    queue_->stop = true;
    queue_->changed.notify_all();
    const bool idle = queue_->changed.wait_for(lock, kErasing, [this] { return queue_->idle(); });
    lock.unlock();
    if (idle) thread_.join();
    else thread_.detach();
  }

  // False: there is no room.
  bool add(int stream, std::string lines, int64_t count) {
    const std::lock_guard lock(queue_->mutex);
    OutputQueue& q = *queue_;
    if (q.bytes + lines.size() > kBound) return false;
    if (q.portions.empty()) q.moved = Clock::now();
    q.bytes += lines.size();
    if (!q.portions.empty() && q.portions.back().stream == stream &&
        q.portions.back().text.size() + lines.size() <= kPortion)
      q.portions.back().text += lines, q.portions.back().lines += count;
    else q.portions.push_back({stream, std::move(lines), count});
    q.changed.notify_all();
    return true;
  }
  void bar(std::string text) {
    const std::lock_guard lock(queue_->mutex);
    queue_->bar = std::move(text);
    queue_->changed.notify_all();
  }
  bool full() const {
    const std::lock_guard lock(queue_->mutex);
    return queue_->bytes > kBound / 2;
  }
  bool still(Seconds patience, Clock::time_point since = {}) const {
    const std::lock_guard lock(queue_->mutex);
    return !queue_->portions.empty() && Clock::now() - std::max(queue_->moved, since) > patience;
  }
  bool wait_empty(Seconds patience) const {
    std::unique_lock lock(queue_->mutex);
    return queue_->changed.wait_for(lock, patience, [this] { return queue_->portions.empty(); });
  }
  int error() const {
    const std::lock_guard lock(queue_->mutex);
    return queue_->error;
  }
  // Discards the lines that nobody has read; returns their number.
  int64_t give_up() {
    const std::lock_guard lock(queue_->mutex);
    int64_t lines = 0;
    for (OutputPortion& p : queue_->portions) lines += std::exchange(p.lines, 0);
    while (queue_->portions.size() > 1) {  // the first is being written
      queue_->bytes -= queue_->portions.back().text.size();
      queue_->portions.pop_back();
    }
    return lines;
  }

 private:
  const std::shared_ptr<OutputQueue> queue_ = std::make_shared<OutputQueue>();
  std::thread thread_;
};

Display::Display()
    : terminal_(is_drawable(2)), first_(is_one_place() ? nullptr : new Outlet()), second_(new Outlet()) {}

Display::~Display() = default;

void Display::write(int stream, std::string lines) {
  const auto count = std::count(lines.begin(), lines.end(), '\n');
  if (!of(stream).add(stream, std::move(lines), count)) lost_[stream - 1] += count;
  else if (lost_[stream - 1] > 0) tell_losses();  // the reader is active again
}

void Display::tell_losses() {
  for (int stream = 1; stream <= 2; ++stream) {
    int64_t& lost = lost_[stream - 1];
    if (lost > 0 && second_->add(2,
                                 concat("ringtape: warning: ", lost, lost == 1 ? " line" : " lines",
                                        " lost: nobody read standard ", stream == 1 ? "output" : "error", "\n"),
                                 1))
      lost = 0;
  }
}

bool Display::is_full(int stream) const { return of(stream).full() && !of(stream).still(kStill); }

void Display::bar(std::string text) {
  if (terminal_) second_->bar(std::move(text));
}

void Display::flush(Seconds patience, const std::function<bool()>& over) {
  const auto begin = Clock::now();
  for (Outlet* const outlet : {first_.get(), second_.get()})
    while (outlet && !outlet->wait_empty(kLook) && !outlet->still(patience, begin) && !over()) {
    }
}

void Display::finish(Seconds patience, const std::function<bool()>& over) {
  bar("");
  flush(patience, over);
  for (int stream = 1; stream <= 2; ++stream)
    if (!of(stream).wait_empty(Seconds(0))) lost_[stream - 1] += of(stream).give_up();
  if (lost_[0] + lost_[1] == 0) return;
  tell_losses();
  flush(std::min(patience, Seconds(0.5)), over);
}

std::string Display::lost() const {
  const int error = of(1).error();
  return error == 0 ? "" : concat("standard output: cannot write: ", reason(error));
}

}  // namespace ringtape::comm
