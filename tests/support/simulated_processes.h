#pragma once
#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/store/store.h"
#include "core/fiber.h"

namespace ringtape::test {

// What happens to a process at a decision: it dies, or it hangs until so many deadlines of others have passed.
struct Strike {
  // kForLong: until nobody else can go on, or others have only waited for a quarter of an hour
  static constexpr int kCrash = 0, kForLong = 1000;
  int decision = 0;
  size_t process = 0;
  int deadlines = kCrash;
};

// Processes that share a store, without sockets, threads and time. Each is a fiber; before each call of its store a
// schedule decides who goes on, dies or hangs. A deadline passes when nobody can go on.
class SimulatedProcesses {
 public:
  struct Process {
    size_t index = 0;
    bool begun = false, crashed = false, has_hung = false;
    bool leaves = false;  // set before its destructors call the store: they cannot throw what a crash throws
    std::string end{};    // how it ended; empty: it lives

   private:
    friend SimulatedProcesses;
    std::function<void(Process&)> body{};
    bool waits = false, woken = false;
    int frozen = 0;      // deadlines that must pass
    double thaws = 0;    // of one that hangs for long
    int since = 0;       // the decision at which it began, or went on after it had hung
    double until = 1e9;  // of its wait, in the simulation's seconds
    std::vector<std::string> keys{};
    std::vector<std::pair<std::string, std::string>> wills{};
    std::array<char, 2 * sizeof(void*)> exceptions{};  // of its fiber, as the C++ library keeps them for a thread
  };
  struct Crashed {};  // what unwinds a process that dies; no std::exception, so that nothing catches it

  // order: of those that can go on: 0 in turn, 1 the first, 2 the last, from 3 on random. random_strikes: how many
  // there are besides, one in 40 decisions.
  SimulatedProcesses(int order, std::vector<Strike> strikes, int random_strikes = 0)
      : order_(order), strikes_(std::move(strikes)), random_strikes_(random_strikes),
        random_(uint64_t(order + 1) * 0x9e3779b97f4a7c15) {}
  virtual ~SimulatedProcesses() = default;

  // A process that begins at a decision, or earlier when `after` others have ended, or when nobody can go on.
  Process& add(std::function<void(Process&)> body, int decision = 0, int after = 1000) {
    Process& p = processes_.emplace_back();
    p.index = processes_.size() - 1;
    p.body = std::move(body);
    begins_.push_back({decision, after});
    if (fibers().size() < processes_.size()) fibers().push_back(std::make_unique<Fiber>(&SimulatedProcesses::entry));
    fibers()[p.index]->restart();
    return p;
  }
  std::shared_ptr<comm::Store> store_of(Process& p);

  void run() {
    while (wrong_.empty() && go_on()) {
    }
    for (Process& p : processes_)
      if (p.end.empty()) p.wills.clear(), crash(p);
  }
  // The name of the first broken invariant, and what broke it; empty: none.
  const std::string& result() const { return wrong_; }
  int decisions() const { return decisions_; }

 protected:
  using Values = std::map<std::string, std::string>;
  void wrong(const std::string& invariant, const std::string& what) {
    if (wrong_.empty()) wrong_ = concat(invariant, ": ", what, " (decision ", decisions_, ")");
  }
  // Lives, and has not hung for a while.
  bool is_well(const Process& p) const {
    return p.begun && p.end.empty() && !p.crashed && !p.frozen && p.since + 200 < decisions_;
  }
  // For what is broken on purpose: what the store's calls see and do.
  virtual void set(const std::string& key, const std::string& value) {
    values_[key] = value;
    for (Process& p : processes_)
      if (p.waits && std::ranges::find(p.keys, key) != p.keys.end()) p.woken = true;
  }
  virtual std::optional<std::string> get(const Process&, const std::string& key) {
    const auto at = values_.find(key);
    return at == values_.end() ? std::nullopt : std::optional(at->second);
  }
  virtual std::string set_once(const Process&, const std::string& key, const std::string& value) {
    if (!values_.count(key)) set(key, value);
    return values_[key];
  }
  virtual int64_t add(Process&, const std::string& key, int64_t amount) {
    const auto at = values_.find(key);
    const int64_t sum = (at == values_.end() ? 0 : std::stoll(at->second)) + amount;
    set(key, std::to_string(sum));
    return sum;
  }
  virtual void execute(const std::string& key, const std::string& who) {
    if (!values_.count(key)) set(key, who + " died");
  }
  std::deque<Process> processes_;
  Values values_;

 private:
  class ProcessStore;
  static constexpr int kMaxDecisions = 5000;

  static std::vector<std::unique_ptr<Fiber>>& fibers() {
    static std::vector<std::unique_ptr<Fiber>> all;
    return all;
  }
  uint64_t draw() { return random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17; }
  static bool can_go_on(const Process& p) { return p.begun && p.end.empty() && !p.frozen && (!p.waits || p.woken); }

  bool go_on() {
    if (++decisions_ > kMaxDecisions) return wrong("all end", "the processes go on for ever"), false;
    for (; next_strike_ < strikes_.size() && strikes_[next_strike_].decision <= decisions_; ++next_strike_)
      strike(strikes_[next_strike_]);
    if (random_strikes_ > 0 && draw() % 40 == 0) {
      --random_strikes_;
      constexpr int kinds[] = {Strike::kCrash, 1, 2, 3, Strike::kForLong};
      strike({decisions_, draw() % processes_.size(), kinds[draw() % 5]});
    }
    const auto ended = std::ranges::count_if(processes_, [](const Process& p) { return !p.end.empty(); });
    for (Process& p : processes_)
      if (decisions_ >= begins_[p.index].first || ended >= begins_[p.index].second) begin(p);
    if (Process* const p = choose()) {
      resume(*p);
      return true;
    }
    if (pass_time()) return true;
    if (std::ranges::any_of(processes_, [](const Process& p) { return p.end.empty(); }))
      wrong("all end", "the processes wait for each other");
    return false;
  }

  Process* choose() {
    std::vector<Process*> all;
    for (Process& p : processes_)
      if (can_go_on(p)) all.push_back(&p);
    if (all.empty()) return nullptr;
    if (order_ == 1) return all.front();
    if (order_ == 2) return all.back();
    if (order_ > 2) return all[draw() % all.size()];
    const auto later = std::ranges::find_if(all, [&](const Process* p) { return p->index > turn_; });
    Process* const p = later == all.end() ? all.front() : *later;
    turn_ = p->index;
    return p;
  }

  // Lets the next deadline pass, or what hangs go on, or a process begin.
  bool pass_time() {
    Process* first = nullptr;
    for (Process& p : processes_)
      if (p.end.empty() && p.begun && !p.frozen && p.until < 1e7 && (!first || p.until < first->until)) first = &p;
    if (first) {
      now_ = std::max(now_, first->until);
      first->waits = false;
      for (Process& p : processes_)
        if (p.frozen && (p.frozen < Strike::kForLong ? --p.frozen == 0 : now_ > p.thaws))
          p.frozen = 0, p.since = decisions_;
      return true;
    }
    for (Process& p : processes_)
      if (p.end.empty() && (p.frozen || !p.begun)) {
        p.frozen = 0, p.since = decisions_;
        return p.begun = true;
      }
    return false;
  }

  void begin(Process& p) {
    if (!p.begun) p.begun = true, p.since = decisions_;
  }

  void strike(const Strike& strike) {
    Process& p = processes_[strike.process];
    if (!p.begun || !p.end.empty()) return;
    if (strike.deadlines == Strike::kCrash) return crash(p);
    p.frozen = strike.deadlines;
    p.thaws = now_ + 900;
    p.has_hung = true;
  }

  void crash(Process& p) {
    p.crashed = true;
    for (const auto& [key, who] : p.wills) execute(key, who);
    if (p.begun) resume(p);
    p.end = "crashed";
  }

  void resume(Process& p) {
    std::array<char, 2 * sizeof(void*)> mine;
    void* const thread = abi::__cxa_get_globals();
    std::memcpy(mine.data(), thread, mine.size());
    std::memcpy(thread, p.exceptions.data(), mine.size());
    running_ = {this, &p};
    Fiber::switch_to(scheduler_, *fibers()[p.index]);
    std::memcpy(p.exceptions.data(), thread, mine.size());
    std::memcpy(thread, mine.data(), mine.size());
  }

  static void entry() {
    Fiber::arrived();
    const auto [all, p] = running_;
    try {
      p->body(*p);
    } catch (const Crashed&) {
    }
    if (p->end.empty()) p->end = p->crashed ? "crashed" : "left";
    Fiber::leave(*fibers()[p->index], all->scheduler_);
  }

  const int order_;
  const std::vector<Strike> strikes_;
  int random_strikes_;
  uint64_t random_;
  std::vector<std::pair<int, int>> begins_;
  size_t next_strike_ = 0, turn_ = 0;
  int decisions_ = 0;
  double now_ = 0;
  Fiber scheduler_;
  std::string wrong_;
  static inline std::pair<SimulatedProcesses*, Process*> running_;
};

class SimulatedProcesses::ProcessStore : public comm::Store {
 public:
  ProcessStore(SimulatedProcesses& all, Process& p) : all_(all), p_(p) {}
  void set(const std::string& key, const std::string& value) override { pause(), all_.set(key, value); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return pause(), all_.set_once(p_, key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return pause(), all_.get(p_, key); }
  std::optional<Entry> wait_any(std::span<const std::string> keys, comm::Deadline deadline) override {
    pause();
    const auto found = [&]() -> std::optional<Entry> {
      for (const std::string& key : keys)
        if (const auto at = all_.values_.find(key); at != all_.values_.end()) return Entry{key, at->second};
      return std::nullopt;
    };
    auto entry = found();
    if (entry) return entry;
    p_.keys.assign(keys.begin(), keys.end());
    p_.until = all_.now_ + std::ceil(deadline.left().count() * 100) / 100;  // the real clock does not matter
    p_.waits = true, p_.woken = false;
    pause();
    p_.waits = false;
    p_.until = 1e9;
    return found();
  }
  int64_t add(const std::string& key, int64_t amount) override { return pause(), all_.add(p_, key, amount); }
  void erase(const std::string& key) override { pause(), all_.values_.erase(key); }
  void will(const std::string& key, const std::string& who) override { pause(), p_.wills.emplace_back(key, who); }

 private:
  // Until the schedule lets this process go on.
  void pause() {
    if (!p_.crashed) Fiber::switch_to(*fibers()[p_.index], all_.scheduler_);
    if (!p_.crashed) return;
    if (p_.leaves || std::uncaught_exceptions() > 0) throw CommError("the process has died");
    throw Crashed();
  }
  SimulatedProcesses& all_;
  Process& p_;
};

inline std::shared_ptr<comm::Store> SimulatedProcesses::store_of(Process& p) {
  return std::make_shared<ProcessStore>(*this, p);
}

}  // namespace ringtape::test
