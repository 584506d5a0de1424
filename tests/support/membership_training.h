#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/job/hub.h"
#include "comm/job/membership.h"
#include "tests/support/simulated_processes.h"

namespace ringtape::test {

// What is broken on purpose, to show that the invariants find it.
enum class Bug {
  none,
  set_once_overwrites,   // two assignments of one generation
  assignments_are_lost,  // as if nobody had assigned ranks
  wills_are_lost,        // nobody learns who died
  ids_come_twice,
  the_gone_look_alive,  // to themselves
  votes_are_ahead,      // they promise a state that nobody has
  votes_are_behind,     // the newest state is not taken
  voters_are_evicted,   // a late vote takes the place of one that is there
  cuts_are_missed,      // those who do not reach each other do not notice
};

// From a decision on, until another one, processes of two hosts do not reach each other, but the store.
struct Cut {
  size_t a = 0, b = 1;  // hosts
  int from = 0, until = 1'000'000;
};

struct Plan {
  int processes = 3, newcomers = 1, min_ranks = 1, max_ranks = 8;
  int begin = 60;     // decision at which newcomers begin; each begins earlier if another process has ended
  int leaver = -1;    // the process that leaves after its first step, as it was told
  int order = 0;      // as of SimulatedProcesses
  int64_t steps = 3;  // of the training
  std::vector<Strike> strikes{};
  int random_strikes = 0;
  int failures = 0;  // so often the second step fails, though nobody goes
  size_t hosts = 2;  // on which the processes are in turn
  std::vector<Cut> cuts{};
  Bug bug = Bug::none;
};

// An elastic training over comm::Membership: it takes steps that all members of a generation complete together, and
// starts again from the state of the one that is furthest. Checks what must hold for all histories.
class MembershipTraining : public SimulatedProcesses {
 public:
  explicit MembershipTraining(const Plan& plan)
      : SimulatedProcesses(plan.order, plan.strikes, plan.random_strikes), plan_(plan),
        states_(size_t(plan.processes + plan.newcomers)), ids_(states_.size()) {
    for (int i = 0; i < plan.processes + plan.newcomers; ++i) {
      const int n = i - plan.processes;  // of the newcomer
      add([this](Process& p) { live(p); }, n < 0 ? 0 : plan.begin + 30 * n, n < 0 ? 1000 : n + 1);
    }
    history_.push_back(kFirst);
  }
  std::string check() {
    run();
    if (result().empty()) check_end();
    return result();
  }
  int count(const std::string& end) const {
    return int(std::ranges::count_if(processes_, [&](const Process& p) { return p.end == end; }));
  }

 private:
  using Membership = comm::Membership;
  using Store = comm::Store;
  using SimulatedProcesses::add;
  // What training has made: `made` has the generation of each step.
  struct State {
    int64_t step = -1;
    std::string made{};
    bool operator==(const State&) const = default;
  };
  static inline const State kFirst{0, ""};
  static constexpr comm::Seconds kTimeout{30}, kNever{1e8};

  // A connection that nothing answers takes its time.
  class SimulatedContact : public comm::Contact {
   public:
    SimulatedContact(MembershipTraining& all, const Process& p, std::shared_ptr<Store> store)
        : all_(all), p_(p), store_(std::move(store)) {}
    std::string address() override { return std::to_string(p_.index); }
    std::vector<std::string> silent(const std::vector<std::string>& addresses, comm::Seconds patience) override {
      std::vector<std::string> out;
      for (const std::string& a : addresses)
        if (all_.is_cut(p_, all_.processes_[size_t(std::stoull(a))])) out.push_back(a);
      const std::string never[] = {"never"};
      if (!out.empty()) store_->wait_any(never, comm::Deadline(patience));
      return all_.plan_.bug == Bug::cuts_are_missed ? std::vector<std::string>() : out;
    }

   private:
    MembershipTraining& all_;
    const Process& p_;
    const std::shared_ptr<Store> store_;
  };

  size_t host(const Process& p) const { return p.index % plan_.hosts; }
  bool is_cut(const Process& p, const Process& q) {
    const size_t a = host(p), b = host(q);
    const bool out = std::ranges::any_of(plan_.cuts, [&](const Cut& c) {
      return c.from <= decisions() && decisions() < c.until && ((c.a == a && c.b == b) || (c.a == b && c.b == a));
    });
    if (out) was_cut_.insert({a, b});
    return out;
  }
  bool were_cut(const Process& p, const Process& q) const {  // from each other, or from others
    return was_cut_.count(host(p)) && was_cut_.count(host(q));
  }
  // Others do not count on it any more: it has gone, or it was a member and is none of the newest assignment.
  bool is_lost(const Process& p) const {
    const int64_t id = ids_[p.index];
    return values_.count(gone_key(p)) || (members_.count(id) && !newest_members_.count(id));
  }

  static std::string folder(int64_t generation) { return concat("gen/", generation, "/"); }
  std::string gone_key(const Process& p) const { return concat("membership/gone/", ids_[p.index]); }
  State& state(const Process& p) { return states_[p.index]; }

  void live(Process& p) {
    const std::string self = concat("process ", p.index);
    try {
      const auto store = store_of(p);
      std::optional<Membership> membership;
      membership.emplace(
          store,
          Membership::Options{.ranks = plan_.processes,
                              .min_ranks = plan_.min_ranks,
                              .max_ranks = plan_.max_ranks,
                              .wait_for_ranks = comm::Seconds(0.1),
                              .answer = comm::Seconds(plan_.min_ranks > 1 ? 0.05 : 3),  // or others starve
                              .contact = std::make_shared<SimulatedContact>(*this, p, store)},
          concat("host ", host(p)), self);
      std::string cause, last;
      for (Membership::End end = Membership::End::none; last.empty();) {
        const comm::Assignment assignment = membership->next({state(p).step, 0}, end, cause);
        note_members(assignment);
        if (membership->is_last()) throw comm::Starved("the last generation");
        check_assignment(p, assignment, membership->rank());
        store->will(folder(assignment.number) + comm::kFailureKey, self);  // as Hub::open
        cause.clear();
        end = train(p, *store, *membership, cause, last);
      }
      p.leaves = true;
      membership.reset();
      if (!p.crashed) p.end = last;
    } catch (const comm::Evicted& e) {
      if (!p.has_hung && !was_cut_.count(host(p)))
        wrong("only who hangs or is cut off is evicted", concat("process ", p.index, ": ", e.what()));
      p.end = "evicted";
    } catch (const comm::Starved& e) {
      const auto others = std::ranges::count_if(
          processes_, [&](const Process& q) { return &q != &p && is_well(q) && !is_lost(q) && !were_cut(p, q); });
      if (1 + others >= plan_.min_ranks) wrong("only too few starve", concat("process ", p.index, ": ", e.what()));
      p.end = "starved";
    } catch (const comm::JobDone&) {
      p.end = "done";
    } catch (const comm::JobFailed& e) {
      p.end = concat("failed: ", e.what());
    } catch (const CommError& e) {
      if (!p.crashed) wrong("the store's records are sound", e.what());
    }
  }

  // In the assignment's generation. Sets `last` if the process has nothing left to do.
  Membership::End train(Process& p, Store& store, Membership& membership, std::string& cause, std::string& last) {
    const comm::Assignment& assignment = membership.assignment();
    const std::string in = folder(assignment.number);
    const std::string failure = in + comm::kFailureKey, change = in + comm::kChangeKey;
    // Of one of the keys; nullopt if the generation fails first.
    const auto wait = [&](std::vector<std::string> keys, comm::Seconds timeout) -> std::optional<Store::Entry> {
      keys.insert(keys.begin(), failure);
      const auto entry = store.wait_any(keys, comm::Deadline(timeout));
      if (entry && entry->key != failure) return entry;
      if (!entry && std::ranges::none_of(processes_, &Process::has_hung) && was_cut_.empty())
        wrong("nobody waits in vain", concat("process ", p.index, " for ", keys.back()));
      cause = entry ? entry->value : store.set_once(failure, concat("process ", p.index, " waited too long"));
      return std::nullopt;
    };
    if (assignment.source < 0) {
      state(p) = kFirst;
    } else if (membership.rank() == assignment.source) {
      store.set(in + "state", concat(state(p).step, "\t", state(p).made));
    } else {
      const auto entry = wait({in + "state"}, kTimeout);
      if (!entry) return Membership::End::failure;
      state(p) = {std::stoll(entry->value), entry->value.substr(entry->value.find('\t') + 1)};
    }
    while (state(p).step < plan_.steps) {
      const bool told = int(p.index) == plan_.leaver && state(p).step > 0;
      if (told) store.set_once(change, "told to leave");
      const State before = state(p);
      if (before.step == 1 && int(failed_.size()) < plan_.failures && failed_.insert(assignment.number).second) {
        cause = store.set_once(failure, "lost a connection");
        return Membership::End::failure;
      }
      for (const comm::Member& m : assignment.members)
        if (is_cut(p, processes_[size_t(std::ranges::find(ids_, m.id) - ids_.begin())])) {
          cause = store.set_once(failure, concat("process ", p.index, " waited for ", m.self));
          return Membership::End::timeout;
        }
      const std::string step = concat(in, "step/", before.step + 1);
      if (store.get(change)) store.set(step + "/change", "1");
      const State& of_others = arrived_.try_emplace(step, before).first->second;
      if (before != of_others)
        wrong("all members have one state", concat(step, ": ", before.made, "not ", of_others.made));
      if (store.add(step, 1) == int64_t(assignment.members.size()))
        store.set(step + "/done", store.get(step + "/change") ? "change" : "go on");
      const auto done = wait({step + "/done"}, kTimeout);
      if (!done) return Membership::End::failure;
      state(p) = {before.step + 1, concat(before.made, assignment.number, " ")};
      membership.check();
      publish(p, assignment.number, before);
      if (done->value != "change" || state(p).step == plan_.steps) continue;
      if (told) last = "told";
      return Membership::End::change;
    }
    if (membership.rank() == 0) membership.finish();
    else if (!wait({comm::kDoneKey}, kNever)) return Membership::End::failure;
    last = "done";
    return Membership::End::none;
  }

  void note_members(const comm::Assignment& assignment) {
    if (assignment.number > newest_assignment_) newest_members_.clear();
    newest_assignment_ = std::max(newest_assignment_, assignment.number);
    for (const comm::Member& m : assignment.members) {
      members_.insert(m.id);
      if (assignment.number == newest_assignment_) newest_members_.insert(m.id);
    }
  }

  void check_assignment(const Process& p, const comm::Assignment& assignment, int rank) {
    const auto known = assignments_.try_emplace(assignment.number, assignment.text()).first;
    if (known->second != assignment.text())
      wrong("one assignment per generation", concat(known->second, " and ", assignment.text()));
    std::set<int64_t> ids;
    for (const comm::Member& m : assignment.members)
      if (!ids.insert(m.id).second) wrong("nobody has a rank twice", assignment.text());
    for (const Process& other : processes_)
      if (other.index != p.index && other.end.empty() && ids_[other.index] == ids_[p.index])
        wrong("nobody has a rank twice", concat("the id ", ids_[p.index]));
    if (int(ids.size()) < plan_.min_ranks || int(ids.size()) > plan_.max_ranks)
      wrong("ranks are within the limits", assignment.text());
    const comm::Member& mine = assignment.members[size_t(rank)];
    const int64_t step = state(p).step;
    const int64_t taken = assignment.source < 0 ? -1 : assignment.members[size_t(assignment.source)].progress.step;
    if (taken < step) wrong("the furthest state is taken", concat(step, " steps of ", assignment.text()));
    if (mine.id != ids_[p.index] || mine.progress.step != step)
      wrong("members have the assigned state", concat(step, " steps of ", assignment.text()));
  }

  // A step that others may see, as a line of a log.
  void publish(const Process& p, int64_t generation, const State& before) {
    const State& now = state(p);
    if (p.crashed || values_.count(gone_key(p))) wrong("the gone do nothing", concat("process ", p.index));
    if (generation < newest_) wrong("one generation works", concat(generation, " after ", newest_));
    newest_ = generation;
    const auto n = size_t(now.step);
    if (n > history_.size() || before != history_[n - 1]) {
      wrong("steps follow each other", concat(now.step, " by ", now.made));
    } else if (n == history_.size()) {
      history_.push_back(now);
    } else if (now != history_[n]) {
      for (const Process& other : processes_)
        if (other.end.empty() && !is_lost(other) && size_t(state(other).step) < history_.size() &&
            state(other).step >= now.step && state(other) == history_[size_t(state(other).step)])
          wrong("no step is lost", concat(now.step, " by ", now.made, "though process ", other.index, " has it"));
      history_.resize(n);
      history_.push_back(now);
    }
  }

  void check_end() {
    int failures = plan_.random_strikes + plan_.failures;
    for (const Strike& s : plan_.strikes) failures += s.deadlines != Strike::kCrash;
    for (const Cut& c : plan_.cuts) failures += c.until < Cut().until;  // the votes may come after it
    for (const Process& p : processes_)
      if (p.end.starts_with("failed") && failures < comm::kMaxStalls)
        wrong("only what stalls fails", concat("process ", p.index, " ", p.end));
    if (count("done") > 0 && int64_t(history_.size()) != plan_.steps + 1)
      wrong("the work is done", concat(history_.size() - 1, " steps"));
  }

  // What is broken on purpose.
  int64_t add(Process& p, const std::string& key, int64_t amount) override {
    int64_t sum = SimulatedProcesses::add(p, key, amount);
    if (key != "membership/ids" || amount == 0) return sum;
    if (plan_.bug == Bug::ids_come_twice && sum == 2) sum = SimulatedProcesses::add(p, key, -1);
    return ids_[p.index] = sum;
  }
  std::optional<std::string> get(const Process& p, const std::string& key) override {
    if (plan_.bug == Bug::the_gone_look_alive && key == gone_key(p)) return std::nullopt;
    return SimulatedProcesses::get(p, key);
  }
  std::string set_once(const Process& p, const std::string& key, const std::string& value) override {
    const bool assignment = key.starts_with("membership/assignment/"), vote = key.starts_with("membership/vote/");
    if (assignment && plan_.bug == Bug::assignments_are_lost) return value;
    if ((assignment && plan_.bug == Bug::set_once_overwrites) || (vote && plan_.bug == Bug::voters_are_evicted))
      return set(key, value), value;
    const int64_t off = plan_.bug == Bug::votes_are_ahead ? 1 : plan_.bug == Bug::votes_are_behind ? -1 : 0;
    if (vote && off && state(p).step > 0 && !value.starts_with("late"))
      return SimulatedProcesses::set_once(p, key, concat(state(p).step + off, value.substr(value.find('\t'))));
    return SimulatedProcesses::set_once(p, key, value);
  }
  void execute(const std::string& key, const std::string& who) override {
    if (plan_.bug != Bug::wills_are_lost) SimulatedProcesses::execute(key, who);
  }

  const Plan plan_;
  std::vector<State> states_;
  std::vector<int64_t> ids_;
  std::map<int64_t, std::string> assignments_;  // texts
  std::set<int64_t> failed_;                    // generations, without a reason
  std::map<std::string, State> arrived_;        // at a step: the first
  std::vector<State> history_;                  // published, by step
  int64_t newest_ = 0, newest_assignment_ = 0;  // generation that has published, and that somebody knows
  std::set<size_t> was_cut_;                    // hosts, as a process has noticed
  std::set<int64_t> members_, newest_members_;  // ids, of all assignments and of the newest
};

}  // namespace ringtape::test
