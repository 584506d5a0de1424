#pragma once
#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/base/deadline.h"
#include "comm/operation.h"

namespace ringtape::comm {

class Failure;

// The current operation of each group of this process, and the last 256 operations of all groups, for reports.
// Thread-safe.
class Activity {
 public:
  static Activity& process();

  // The entry of one group of a rank; its transport owns it.
  class Line {
   public:
    Line(int rank, int size, const Failure* failure, const std::atomic<int>& waiting_on);
    ~Line();
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;
    void begin(const Operation& operation, std::string_view transport);  // transport: a literal
    void end();

   private:
    friend class Activity;
    const int rank_, size_;
    const Failure* const failure_;
    const std::atomic<int>& waiting_on_;
    uint64_t last_ = 0;  // its newest record's number
    bool running_ = false;
  };

  void set_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }  // of the training; -1: none

  // A row for each operation that runs in a group of `failure`; if none runs, for the last one that ended. The cells
  // are tab-separated, in the order of kColumns. `rank`: the process's rank in the job; -1: use the ranks of its
  // groups.
  std::string rows(const Failure* failure, int rank = -1) const;

  // The last operations as text, oldest first.
  std::string history() const;

 private:
  static constexpr size_t kRecords = 256;
  struct Record {
    uint64_t number = 0;  // 1 for the process's first; 0: none
    int rank = 0, size = 0;
    int64_t step = -1;
    Operation operation;
    std::string_view transport;
    Clock::time_point begin, end;  // end before begin: still running
  };
  std::string row(const Line& line, int rank, Clock::time_point now) const;

  mutable std::mutex mutex_;
  std::set<const Line*> lines_;
  std::array<Record, kRecords> records_;
  uint64_t count_ = 0;
  std::atomic<int64_t> step_{-1};
};

inline constexpr std::array<const char*, 8> kColumns = {"rank",      "host",  "pid",       "step",
                                                        "operation", "bytes", "waits for", "since"};

// Lines of tab-separated cells as a table under kColumns.
std::string table(std::string_view rows);

}  // namespace ringtape::comm
