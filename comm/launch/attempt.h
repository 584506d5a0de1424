#pragma once
#include <memory>
#include <vector>

#include "comm/launch/child.h"
#include "comm/launch/display.h"
#include "comm/launch/guard.h"
#include "comm/launch/launch.h"
#include "comm/launch/rank_output.h"
#include "comm/launch/signals.h"

namespace ringtape::comm {

// Runs all ranks of this machine once.
class Attempt {
 public:
  // `port`: where the job meets; `deadline`: of the whole launch.
  Attempt(const Launch& launch, int number, int port, const Deadline& deadline, Signals& signals, Guard& guard,
          Display& display);
  ~Attempt();  // kills what still runs

  int run();                                 // until all have ended; returns the exit code of launch()
  bool stopped() const { return stopped_; }  // a signal told it to end
  std::string report() const;                // what went wrong: one line, and details below it
  std::string lost() const;                  // why a log is not complete; empty: all are

 private:
  struct Rank {
    int rank = 0;
    pid_t pid = 0;
    Fd out, err, bar;
    std::unique_ptr<RankOutput> output;
    std::string log;
    bool running = true;
    int code = 0;        // 128 + signal
    double seconds = 0;  // running time
  };
  std::string log_folder() const;
  void start();
  void wait();
  void handle_signals();
  void drain(Rank& rank);
  void pass_on(int signal);
  void reap();
  void tell_of_end(const Rank& rank);
  void failed(Rank* first, int code);
  void end_after_grace();
  void send(int signal, bool group);
  bool read(Rank& rank);
  void read_bar(Rank& rank);
  bool running() const;

  const Launch& launch_;
  const int number_, port_;
  const Deadline& deadline_;
  Signals& signals_;
  Guard& guard_;
  Display& display_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<Rank> ranks_;
  Rank* first_ = nullptr;  // first rank that failed
  int code_ = 0;
  bool stopped_ = false, killed_ = false, joined_ = false;  // joined_: all ranks have joined the job
  int interrupts_ = 0;
  std::optional<Deadline> kill_at_;
};

}  // namespace ringtape::comm
