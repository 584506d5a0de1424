#include "comm/launch/attempt.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "comm/job/rendezvous.h"
#include "comm/launch/cores.h"
#include "comm/launch/environment.h"
#include "comm/launch/pipe.h"
#include "comm/store/tcp_store.h"
#include "core/cgroup.h"
#include "core/check.h"

namespace ringtape::comm {

static int code_of(const siginfo_t& info) { return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status; }

constexpr int kHeldBackMs = 20;  // time between two checks of a full display

// Kills processes that the ranks left behind outside of their process groups: this process has become their parent.
static void kill_strays(pid_t guard) {
  for (bool found = true; found;) {
    found = false;
    std::ifstream children(concat("/proc/self/task/", ::getpid(), "/children"));
    for (pid_t pid; children >> pid;)
      if (pid != guard && ::kill(pid, SIGKILL) == 0) found = ::waitpid(pid, nullptr, 0) == pid;
  }
}

Attempt::Attempt(const Launch& launch, int number, int port, const Deadline& deadline, Signals& signals, Guard& guard,
                 Display& display)
    : launch_(launch), number_(number), port_(port), deadline_(deadline), signals_(signals), guard_(guard),
      display_(display), oom_kills_(launch.groups.oom_kills()) {}

Attempt::~Attempt() {
  send(SIGKILL, true);
  for (Rank& r : ranks_) {
    if (!r.running) continue;
    guard_.forget(r.pid);
    ::waitpid(r.pid, nullptr, 0);
  }
  kill_strays(guard_.pid());
}

int Attempt::run() {
  start();
  while (goes_on()) wait();
  kill_strays(guard_.pid());
  display_.bar("");
  for (Rank& r : ranks_) drain(r);
  const bool is_done = launch_.elastic && std::ranges::any_of(ranks_, [](const Rank& r) { return r.code == 0; });
  return is_done && (first_ || code_ == 0) ? 0 : code_;
}

// Reads the remaining output of a rank, as fast as the display takes it, unless this process was told to end.
void Attempt::drain(Rank& r, int reads) {
  for (bool any = true; any && reads > 0; --reads) {
    while ((r.output->is_full(1) || r.output->is_full(2)) && !stopped_ && !deadline_.passed()) {
      pollfd signal{signals_.fd(), POLLIN, 0};
      ::poll(&signal, 1, kHeldBackMs);
      handle_signals();
    }
    any = read(r);
  }
  r.output->finish();
}

// Creates the folder of its logs; empty if there are none.
std::string Attempt::log_folder(int number) const {
  if (launch_.log_dir.empty()) return "";
  const std::string folder = concat(launch_.log_dir, "/attempt_", number, "/");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  RT_CHECK_AS(IoError, !error, folder, ": cannot create: ", error.message());
  return folder;
}

void Attempt::start() {
  const auto parts = divide_cores(usable_cores(), launch_.local_size);
  const std::vector<int> threads = divide_threads(usable_cpus(), launch_.local_size);
  ranks_.resize(size_t(launch_.local_size));
  for (int local = 0; local < launch_.local_size; ++local) {
    Rank& r = ranks_[size_t(local)];
    r.local = local, r.rank = launch_.first_rank() + local, r.number = number_;
    r.threads = threads[size_t(local)];
    if (launch_.pin) r.cores = parts[size_t(local)];
    start(r);
  }
}

void Attempt::start(Rank& r) {
  if (const std::string folder = log_folder(r.number); !folder.empty()) r.log = concat(folder, "rank_", r.rank, ".log");
  const bool shown = !launch_.shown || launch_.shown->count(r.rank);
  r.output = std::make_unique<RankOutput>(r.rank, shown ? &display_ : nullptr, launch_.prefix, r.log);
  ChildSpec spec;
  spec.command = launch_.command;
  if (r.number > 0) spec.command.insert(spec.command.end(), launch_.on_restart.begin(), launch_.on_restart.end());
  PipeEnds bar;
  if (r.rank == 0 && shown && display_.is_terminal()) {
    bar = make_pipe();
    ::fcntl(bar.read.get(), F_SETFL, O_NONBLOCK);
    spec.inherited = bar.write.get();
  }
  spec.environment = rank_environment(launch_, {.local_rank = r.local,
                                                .attempt = r.number,
                                                .port = port_,
                                                .threads = r.threads,
                                                .bar = spec.inherited,
                                                .log = r.log});
  spec.cores = r.cores;
  spec.input = r.rank == 0 && !::isatty(0);  // a background group may not read from a terminal
  spec.announced = guard_.to_watch();
  Child child = start_child(spec, signals_);
  r.running = true;
  r.begin = Clock::now();
  r.pid = child.pid;
  r.out = std::move(child.out);
  r.err = std::move(child.err);
  r.bar = std::move(bar.read);
}

// Waits for one event: output, a signal, the end of a rank, a deadline. Starts ranks again.
void Attempt::wait() {
  std::vector<pollfd> ready = {{signals_.fd(), POLLIN, 0}};
  bool held_back = false;
  for (const Rank& r : ranks_) {
    // A rank that was told to end may have to write before it ends, and has little time.
    const bool full = !stopped_ && !kill_at_ && (r.output->is_full(1) || r.output->is_full(2));
    held_back = held_back || full;
    for (const Fd* end : {&r.out, &r.err}) ready.push_back({full ? -1 : end->get(), POLLIN, 0});
    ready.push_back({r.bar.get(), POLLIN, 0});
  }
  const Deadline& next = kill_at_ ? *kill_at_ : deadline_;
  int patience = killed_ ? 1000 : next.left_ms();
  for (const Rank& r : ranks_)
    if (r.again) patience = std::min(patience, r.again->left_ms());
  ::poll(ready.data(), ready.size(), held_back ? std::min(patience, kHeldBackMs) : patience);
  for (size_t i = 1; i < ready.size(); ++i) {
    Rank& r = ranks_[(i - 1) / 3];
    if (ready[i].revents == 0) continue;
    if ((i - 1) % 3 == 2) read_bar(r);
    else read(r);
  }
  handle_signals();
  if (deadline_.passed() && (code_ == 0 || (launch_.elastic && !kill_at_))) failed(nullptr, kTimedOut);
  if (kill_at_ && kill_at_->passed() && !std::exchange(killed_, true)) send(SIGKILL, true);
  for (Rank& r : ranks_)
    if (r.again && r.again->passed()) start_again(r);
}

void Attempt::handle_signals() {
  while (const auto signal = signals_.next()) {
    if (*signal == SIGCHLD) reap();
    else pass_on(*signal);
  }
}

void Attempt::pass_on(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) return send(signal, false);
  stopped_ = true;
  give_up_waiting("the launcher was told to end");
  if (signal == SIGINT && ++interrupts_ == 2) kill_at_ = Deadline(Seconds(0));
  else send(signal, true);
}

// How likely a rank that ended with this code is the cause of the others' end: one that was killed; one that was told
// to stop before it could tell the others, which then miss it; one that failed.
static int likelihood(int code) { return code > 128 ? 3 : code == kPreempted ? 2 : code != 0 ? 1 : 0; }

// Collects the ranks that have ended. If several have, their order is unknown.
void Attempt::reap() {
  Rank* failure = nullptr;
  std::vector<Rank*> ended;
  for (siginfo_t info{}; ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0; info = {}) {
    const auto r = std::find_if(ranks_.begin(), ranks_.end(),
                                [&](const Rank& each) { return each.running && each.pid == info.si_pid; });
    if (r != ranks_.end()) {
      ::kill(-r->pid, SIGKILL);  // processes that it left behind
      guard_.forget(r->pid);
      r->running = false;
      r->code = code_of(info);
      r->seconds = Seconds(Clock::now() - r->begin).count();
      ended.push_back(&*r);
      if (likelihood(r->code) > likelihood(failure ? failure->code : 0)) failure = &*r;
      if (r->code == 0 && !launch_.elastic) tell_of_end(*r);
    }
    ::waitpid(info.si_pid, nullptr, 0);
  }
  if (!launch_.elastic) {
    if (failure && code_ == 0) failed(failure, failure->code);
    return;
  }
  std::ranges::stable_sort(ended, std::ranges::greater(), [](const Rank* r) { return likelihood(r->code); });
  for (Rank* r : ended) settle(*r);
}

// The other ranks would wait for a rank that ends without having joined the job.
void Attempt::tell_of_end(const Rank& r) {
  if (launch_.node != 0 || joined_ || !running()) return;
  try {
    const auto store = tcp_store({"127.0.0.1", port_, launch_.token}, Deadline(Seconds(1)));
    joined_ = note_end(*store, r.rank, concat(" (pid ", r.pid, ") ended with exit code 0"));
  } catch (const CommError&) {  // they wait
  }
}

std::string Attempt::lost() const {
  for (const Rank& r : ranks_)
    if (!r.output->lost().empty()) return r.output->lost();
  return lost_;
}

void Attempt::failed(Rank* first, int code) {
  first_ = first;
  code_ = code;
  end_others();
}

// If they were told to end already, they may be writing a checkpoint, which another SIGTERM would interrupt.
void Attempt::end_others() {
  if (!stopped_) send(SIGTERM, true);
  if (!kill_at_) kill_at_ = Deadline(launch_.grace);
  give_up_waiting(deadline_.passed() ? "--timeout has passed" : "the job has failed");
}

void Attempt::send(int signal, bool group) {
  for (const Rank& r : ranks_)
    if (r.running) ::kill(group ? -r.pid : r.pid, signal);
}

// Reads some of the available output, so that one rank cannot delay the others. False if there was none; at the end of
// the file, closes it.
bool Attempt::read(Rank& r) {
  char bytes[16 << 10];
  bool any = false;
  for (int stream = 1; stream <= 2; ++stream) {
    Fd& end = stream == 1 ? r.out : r.err;
    if (!end) continue;
    const ssize_t n = ::read(end.get(), bytes, sizeof bytes);
    if (n > 0) r.output->take(stream, {bytes, size_t(n)}), any = true;
    if (n == 0) end = Fd();
  }
  return any;
}

// The newest bar that the rank has written, one line each; an empty line removes the bar.
void Attempt::read_bar(Rank& r) {
  char bytes[16 << 10];
  const ssize_t n = ::read(r.bar.get(), bytes, sizeof bytes);
  if (n == 0) r.bar = Fd();
  if (n == 0) display_.bar("");
  if (n <= 0 || bytes[n - 1] != '\n') return;
  const std::string_view lines(bytes, size_t(n - 1));
  display_.bar(std::string(lines.substr(lines.rfind('\n') + 1)));
}

bool Attempt::running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running; });
}

bool Attempt::goes_on() const {
  return running() || std::ranges::any_of(ranks_, [](const Rank& r) { return r.again.has_value(); });
}

}  // namespace ringtape::comm
