#pragma once
#include <climits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/launch/child.h"
#include "comm/launch/display.h"
#include "comm/launch/guard.h"
#include "comm/launch/launch.h"
#include "comm/launch/rank_output.h"
#include "comm/launch/signals.h"

namespace ringtape::comm {

// Runs all ranks of this machine once; those of an elastic job again and again.
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
    int local = 0, rank = 0;
    int number = 0;  // of the attempt; elastic: how often it was started again
    std::vector<int> cores;
    int threads = 1;
    pid_t pid = 0;
    Fd out, err, bar;
    std::unique_ptr<RankOutput> output;
    std::string log;
    bool running = false;
    Clock::time_point begin{};
    int code = 0;                     // 128 + signal
    double seconds = 0;               // running time
    std::optional<Deadline> again{};  // when it is started again
    Seconds pause{0};                 // before that
  };
  std::string log_folder(int number) const;
  void start();
  void start(Rank& rank);
  void wait();
  void handle_signals();
  void drain(Rank& rank, int reads = INT_MAX);
  void pass_on(int signal);
  void reap();
  void tell_of_end(const Rank& rank);
  void failed(Rank* first, int code);
  void end_others();
  void send(int signal, bool group);
  bool read(Rank& rank);
  void read_bar(Rank& rank);
  bool running() const;
  bool goes_on() const;

  // Of an elastic job:
  struct Refusal {
    std::string why;
    bool ends_all = false;
  };
  std::string end_of(const Rank& rank) const;
  std::string out_of_memory() const;
  void settle(Rank& rank);
  std::optional<Refusal> refusal(const Rank& rank) const;
  std::optional<Refusal> end_of_job(Seconds patience) const;
  void start_again(Rank& rank);
  void give_up(Rank& rank, const std::string& why);
  void give_up_waiting(const std::string& why);
  void note_success();
  void note_failure(Rank& rank);

  const Launch& launch_;
  const int number_, port_;
  const Deadline& deadline_;
  Signals& signals_;
  Guard& guard_;
  Display& display_;
  std::vector<Rank> ranks_;
  Rank* first_ = nullptr;  // first rank that failed
  int code_ = 0;
  bool stopped_ = false, killed_ = false, joined_ = false;  // joined_: all ranks have joined the job
  int interrupts_ = 0, restarts_ = 0;
  std::string lost_;  // of outputs that are not there any more
  std::optional<Deadline> kill_at_;
  std::optional<int64_t> oom_kills_;  // of which it has told, and those before the attempt
  bool done_ = false;                 // the elastic job, as a rank has shown that ended well
};

}  // namespace ringtape::comm
