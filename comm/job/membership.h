#pragma once
#include <atomic>
#include <climits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/job/assignment.h"
#include "comm/job/contact.h"
#include "comm/job/rendezvous.h"
#include "comm/store/store.h"

namespace ringtape::comm {

struct Ballot;

// The processes of a job that come and go, seen from one of them. They agree only through the store, which is the only
// judge of who is there: a process lives until the store has its end. The steps of a process:
//   Membership membership(store, ...);                // says hello, and leaves a will
//   for (Assignment a = membership.next({}, starts);;) { // waits until it has a rank
//     Job job = membership.open();                     // of this generation, with a failure of its own
//     ...                                              // works, until the failure is raised or a change is due
//     a = membership.next(progress, ...);              // votes: says how far it is
//   }
// Every member of a generation votes for the next one, or has gone. Then the first to see this writes the assignment
// with set_once. A member that hangs is waited for; then the others cast a vote "late" for it: it counts as gone, and
// ends itself once it notices. A generation begins when all its members know of it; if one goes before, they vote
// again. After a failure a vote also says which members on other hosts, that have not gone, its process does not reach.
// Hosts are left out until the others all reach each other: first one without members, then the one that reaches the
// fewest others, of several the one with the fewest members, then the last. A newcomer waits until it reaches all
// members.
class Membership {
 public:
  struct Options {
    int ranks = 1;                     // that the first generation waits for
    int place = 0;                     // Member::place of this process
    int min_ranks = 1;                 // fewer do not work
    int max_ranks = INT_MAX;           // more do not work: they wait until one is needed
    bool (*told_to_stop)() = nullptr;  // whether this process must not wait for others any more; null: it may
    Seconds wait_for_ranks{300};       // how long fewer than min_ranks wait for others
    Seconds patience{600};             // how long a member that has not gone is waited for
    Seconds answer{10};  // how long one that gives no answer is tried to be reached; at most half of patience
    std::shared_ptr<Contact> contact{};  // null: all reach each other
  };
  Membership(std::shared_ptr<Store> store, const Options& options, std::string host, std::string self);
  ~Membership();  // says that this process has gone
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Why the generation, of which this process was a member, has ended.
  enum class End : uint8_t { none, change, failure, timeout };  // timeout: a failure because somebody hangs
  // The next generation in which this process has a rank. `progress`: of a state that is whole; -1 steps for one that
  // was received in part. `cause`: of a failure. Throws Evicted, Starved, JobDone or JobFailed, or CommError if the
  // store is lost. If too few have a state, and nobody comes, they get a last generation: see is_last().
  Assignment next(const Progress& progress, End end, const std::string& cause = "");
  static bool has_begun(Store& store);    // whether there has been a generation in the store's job
  static int64_t arrivals(Store& store);  // how many processes have said hello so far
  const Assignment& assignment() const { return assignment_; }
  const Options& options() const { return options_; }
  int rank() const;  // in assignment(); -1: none
  // Whether it is the first of its host's ranks.
  bool speaks_for_host() const { return rank() == 0 || (rank() > 0 && on_other_host(rank() - 1)); }
  // Whether the generation has fewer than min_ranks members, who can only save what they have.
  bool is_last() const { return int(assignment_.members.size()) < options_.min_ranks; }

  // Of this generation: with a failure of its own, which the end of a member raises. The place is that on the host.
  Job open(int local_rank, int local_size);
  // Whether a process asks for the end of this generation after a step: it comes or goes.
  bool change_is_due() const { return change_->load(std::memory_order_relaxed); }

  // Whether this generation has failed, as when one of its members has gone.
  bool failed() const { return failure_ && failure_->raised(); }
  bool failed_here() const { return failed() && failure_->ours(); }  // and this process was the first to say so
  void give_up(const std::string& cause);  // ends this generation: its members vote for another one
  // Ends the job: every process gets JobFailed from next(), if it does not meet the cause earlier. Throws Evicted if
  // others have gone on without this process.
  void fail(const std::string& cause);
  // The job's work is done: no generation follows, and next() throws JobDone. One member calls it, or throws Evicted.
  void finish();
  void wait_until_done();  // returns after finish(), or throws CommError when `failure` of the generation is raised
  // Throws Evicted if others have gone on without this process. Call it before writing what they may write, too.
  void check();

 private:
  Ballot look(int64_t number);
  std::string decide(int64_t number, End end, const std::string& cause);
  Assignment propose(int64_t number, const Ballot& ballot);
  std::optional<std::string> gather();
  bool on_other_host(int rank) const { return assignment_.members[size_t(rank)].host != host_; }
  bool has_several_hosts() const;
  std::vector<Member> unreached();
  std::vector<Member> await_way();
  void check_job();
  Assignment read_assignment(const std::string& text);
  void follow();

  const std::shared_ptr<Store> store_;
  const Options options_;
  const std::string host_, self_;
  int64_t id_ = 0;
  Assignment assignment_;
  bool told_ = false;  // that it waits for a place
  std::shared_ptr<Failure> failure_;
  std::shared_ptr<std::atomic<bool>> change_ = std::make_shared<std::atomic<bool>>(false);
};

struct Evicted : CommError {  // the others went on without this process
  using CommError::CommError;
};
struct Starved : CommError {  // fewer than min_ranks are left, and nobody comes
  using CommError::CommError;
};
struct JobDone : CommError {  // nothing is left to do
  using CommError::CommError;
};
struct JobFailed : CommError {  // for all, with its cause
  using CommError::CommError;
};

inline constexpr const char* kDoneKey = "membership/done";  // set once the job's work is done
// A process has this many generations' time to end the same step before the job fails with what stops it.
inline constexpr int64_t kMaxStalls = 3;

}  // namespace ringtape::comm
