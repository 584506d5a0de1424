#include "comm/job/membership.h"

#include <algorithm>
#include <map>
#include <utility>

#include "comm/job/ballot.h"
#include "comm/job/hub.h"
#include "comm/store/frame.h"
#include "core/log.h"

namespace ringtape::comm {

namespace {

constexpr const char* kIds = "membership/ids";  // counter of processes
constexpr const char* kNow = "membership/now";  // the newest generation, about
constexpr Seconds kPoll{0.02};                  // between two looks for processes that are not there
constexpr Seconds kFirstRetry{1}, kRetry{15};   // of a newcomer, to reach others
constexpr Seconds kRound{0.5};                  // of tries, after which members may have gone
constexpr Seconds kPrompt{2};                   // for those that hang, and have been waited for already
const std::string kLate = "late: ";             // and why: what others put in the place of a vote
const std::string kSilent = " did not answer";
const std::string kFinished = "done";  // in the place of an assignment
const std::string kLeftBehind = "the other ranks have gone on without this process: ";

std::string gone_key(int64_t id) { return concat("membership/gone/", id); }
std::string assignment_key(int64_t number) { return concat("membership/assignment/", number); }
std::string vote_key(int64_t number, int64_t id) { return concat("membership/vote/", number, "/", id); }
std::string contact_key(int64_t id) { return concat("membership/contact/", id); }
std::string here_key(int64_t number, int64_t id) { return concat("membership/here/", number, "/", id); }
std::string folder_of(int64_t number) { return concat("gen/", number); }
std::string failure_key(int64_t number) { return concat(folder_of(number), "/", kFailureKey); }
std::string change_key(int64_t number) { return concat(folder_of(number), "/", kChangeKey); }

bool is_ahead(const Progress& a, const Progress& b) { return a.step != b.step ? a.step > b.step : a.epochs < b.epochs; }

// The members of a host follow each other, in the order of each host's first; else the order stays.
void group_by_host(std::vector<Member>& members) {
  std::vector<std::string> hosts;
  for (const Member& m : members)
    if (std::ranges::find(hosts, m.host) == hosts.end()) hosts.push_back(m.host);
  std::ranges::stable_sort(members, {}, [&](const Member& m) { return std::ranges::find(hosts, m.host); });
}

// Context::island of hosts in this order.
int island_of(const std::vector<Member>& members) {
  size_t island = 1;
  while (island < members.size() && members[island].host == members[0].host) ++island;
  if (members.size() % island != 0) return 1;
  for (size_t i = 1; i < members.size(); ++i)
    if ((members[i].host == members[i - 1].host) == (i % island == 0)) return 1;
  return int(island);
}

}  // namespace

Assignment Membership::read_assignment(const std::string& text) {
  if (text != kFinished) return Assignment::parse(text);
  store_->set(kDoneKey, "1");  // which its leader may not have come to
  throw JobDone("the job's work is done");
}

Membership::Membership(std::shared_ptr<Store> store, const Options& options, std::string host, std::string self)
    : store_(std::move(store)), options_(options), host_(one_line(std::move(host))), self_(one_line(std::move(self))) {
  id_ = store_->add(kIds, 1);
  store_->will(gone_key(id_), self_);
}

Membership::~Membership() {
  try {
    store_->set_once(gone_key(id_), self_ + " left the job");
  } catch (const CommError&) {  // the store is lost
  }
}

int64_t Membership::arrivals(Store& store) { return store.add(kIds, 0); }

bool Membership::has_begun(Store& store) { return store.get(assignment_key(1)).has_value(); }

int Membership::rank() const {
  const auto at = std::ranges::find(assignment_.members, id_, &Member::id);
  return at == assignment_.members.end() ? -1 : int(at - assignment_.members.begin());
}

void Membership::check() {
  const auto gone = store_->get(gone_key(id_));
  RT_CHECK_AS(comm::Evicted, !gone, kLeftBehind, *gone);
}

void Membership::check_job() {
  check();
  if (const auto cause = store_->get(kFailureKey)) throw JobFailed(*cause);
  RT_CHECK_AS(comm::JobDone, !store_->get(kDoneKey), "the job's work is done");
}

// Goes on to the newest assignment.
void Membership::follow() {
  if (assignment_.number == 0)
    if (const auto now = store_->get(kNow))
      if (const auto text = store_->get(assignment_key(Cells(*now).number()))) assignment_ = read_assignment(*text);
  while (const auto text = store_->get(assignment_key(assignment_.number + 1))) assignment_ = read_assignment(*text);
}

Assignment Membership::next(const Progress& progress, End end, const std::string& cause) {
  for (std::string why = cause;;) {
    why.resize(std::min(why.find('\n'), why.size()));  // a table of the ranks may follow
    const bool was_member = rank() >= 0, failed = end == End::failure || end == End::timeout;
    const auto away = !was_member ? await_way() : failed ? unreached() : std::vector<Member>();
    const int64_t number = assignment_.number + 1;
    Vote vote{{id_, progress, host_, self_, options_.place}, failed, one_line(why)};
    for (const Member& m : away) vote.unreached.push_back(m.id);
    const std::string voted = store_->set_once(vote_key(number, id_), vote.text());
    if (voted.starts_with(kLate)) store_->set_once(gone_key(id_), voted.substr(kLate.size()));
    const auto ranks = int(assignment_.members.size());
    const bool waits = !was_member && number > 1, full = ranks >= options_.max_ranks;
    if (waits && !full) store_->set(change_key(number - 1), self_ + " joins");
    if (waits && full && !std::exchange(told_, true))
      log_info("this process waits for a place: the job has ", ranks, " ranks, as many as it can use");
    assignment_ = read_assignment(decide(number, end, why));
    if (rank() >= 0) {
      const auto failure = gather();
      if (!failure) break;
      end = End::failure, why = *failure;
      continue;
    }
    check();
    RT_CHECK_AS(comm::Evicted, !was_member, kLeftBehind, assignment_.cause);
  }
  change_->store(false);
  return assignment_;
}

// Waits until all members of the new generation know that they are; from then on the store tells the others of their
// end. Returns why the generation failed before.
std::optional<std::string> Membership::gather() {
  const std::string failure = failure_key(assignment_.number);
  store_->will(failure, self_);
  if (has_several_hosts()) store_->set(contact_key(id_), options_.contact->address());
  store_->set(here_key(assignment_.number, id_), "1");
  const Deadline deadline(options_.patience);
  for (const Member& m : assignment_.members) {
    const std::string keys[] = {failure, gone_key(m.id), here_key(assignment_.number, m.id)};
    const auto entry = store_->wait_any(keys, deadline);
    if (!entry || entry->key != keys[2]) return store_->set_once(failure, entry ? entry->value : m.self + kSilent);
  }
  return std::nullopt;
}

bool Membership::has_several_hosts() const {
  return options_.contact && std::ranges::any_of(assignment_.members, [&](const Member& m) { return m.host != host_; });
}

// The members on other hosts that this process does not reach, though they have not gone.
std::vector<Member> Membership::unreached() {
  std::vector<Member> out;
  std::map<int64_t, std::string> addresses;
  for (const Member& m : assignment_.members)
    if (options_.contact && m.host != host_)
      if (const auto address = store_->get(contact_key(m.id)); address && !address->empty())
        out.push_back(m), addresses[m.id] = *address;
  const Seconds most = std::min(options_.answer, options_.patience / 2), round = std::min(kRound, most);
  for (Seconds tried{0}; !out.empty() && tried < most; tried += round) {
    std::erase_if(out, [&](const Member& m) { return store_->get(gone_key(m.id)).has_value(); });
    std::vector<std::string> asked;
    for (const Member& m : out) asked.push_back(addresses[m.id]);
    const auto silent = options_.contact->silent(asked, round);
    std::erase_if(out, [&](const Member& m) { return std::ranges::find(silent, addresses[m.id]) == silent.end(); });
  }
  return out;
}

// Of a newcomer: members that it does not reach would stop for it in vain. If they stop anyway, it may take part;
// returns those that it does not reach.
std::vector<Member> Membership::await_way() {
  for (Seconds pause = kFirstRetry;; pause = std::min(2 * pause, kRetry)) {
    follow();
    const auto away = unreached();
    if (away.empty()) return {};
    const std::string change = change_key(assignment_.number), failure = failure_key(assignment_.number);
    if (store_->get(change) || store_->get(failure)) return away;
    if (pause == kFirstRetry)
      log_warn("this process waits until it reaches ", away.front().self, ", a rank of the job");
    check_job();
    RT_CHECK_AS(comm::Starved, !options_.told_to_stop || !options_.told_to_stop(), "there is no way to ",
                away.front().self);
    const std::string keys[] = {change, failure, kFailureKey, kDoneKey};
    store_->wait_any(keys, Deadline(pause));
  }
}

Ballot Membership::look(int64_t number) {
  Ballot out;
  std::vector<Vote> votes, newcomers;
  for (const Member& m : assignment_.members) {
    if (auto gone = store_->get(gone_key(m.id))) {
      out.gone.push_back(std::move(*gone));
    } else if (const auto vote = store_->get(vote_key(number, m.id)); !vote) {
      out.missing.push_back(m);
    } else if (vote->starts_with(kLate)) {
      out.gone.push_back(store_->set_once(gone_key(m.id), vote->substr(kLate.size())));
    } else {
      votes.push_back(Vote::parse(m.id, *vote));
      if (votes.back().failed && !out.failed) out.cause = votes.back().cause;
      out.failed |= votes.back().failed;
    }
  }
  out.last = store_->add(kIds, 0);
  std::vector<int64_t> others = assignment_.others;
  for (int64_t id = assignment_.last + 1; id <= out.last; ++id) others.push_back(id);
  for (const int64_t id : others) {
    if (store_->get(gone_key(id))) continue;
    const auto vote = store_->get(vote_key(number, id));
    if (!vote) {
      out.unknown.push_back(id);
      continue;
    }
    newcomers.push_back(Vote::parse(id, *vote));
  }
  std::ranges::stable_sort(newcomers, {}, [](const Vote& v) { return v.from.place; });
  out.newcomers = int(newcomers.size());
  votes.insert(votes.end(), newcomers.begin(), newcomers.end());
  for (const Vote& v : votes) out.voters.push_back(v.from);
  for (const Vote& v : votes)
    for (const int64_t id : v.unreached)
      if (const Member* m = out.find(id)) out.cuts.emplace_back(v.from, *m);
  return out;
}

// Returns the assignment of generation `number`, which this process makes if it is the first to see all votes.
std::string Membership::decide(int64_t number, End end, const std::string& cause) {
  const Deadline patience(end == End::none ? Seconds(1e8) : options_.patience);
  const Seconds trying = has_several_hosts() ? options_.answer : Seconds(0);  // others, to reach each other
  const Deadline prompt(std::min(kPrompt + trying, options_.patience));
  for (Seconds starved{0};;) {
    Ballot ballot = look(number);
    if (auto made = store_->get(assignment_key(number))) return *made;  // after the look, which may have come too late
    check_job();
    if (!ballot.missing.empty()) {
      std::vector<std::string> keys = {assignment_key(number), kFailureKey, kDoneKey,
                                       vote_key(number, ballot.missing.front().id)};
      for (const Member& m : ballot.missing)
        if (keys.size() < kMaxFields) keys.push_back(gone_key(m.id));
      // Members of a generation that goes on are not late.
      const bool hangs = end == End::timeout && ballot.gone.empty();
      if (store_->wait_any(keys, hangs ? prompt : patience)) continue;
      for (const Member& m : ballot.missing) {  // in the place of its vote: whoever has voted cannot be evicted
        const bool known = cause.empty() || cause.starts_with(m.self + kSilent);
        store_->set_once(vote_key(number, m.id), concat(kLate, m.self, kSilent, known ? "" : ": " + one_line(cause)));
      }
      continue;
    }
    ballot.part(assignment_);
    const auto voters = int(ballot.voters.size());
    const bool all = voters >= (number == 1 ? std::max(options_.ranks, options_.min_ranks) : options_.min_ranks);
    const bool waited = starved >= options_.wait_for_ranks || (options_.told_to_stop && options_.told_to_stop());
    const auto has_state = [](const Member& m) { return m.progress.step >= 0; };
    if (all || (waited && (voters >= options_.min_ranks || std::ranges::any_of(ballot.voters, has_state)))) {
      const std::string assigned = store_->set_once(assignment_key(number), propose(number, ballot).text());
      store_->set(kNow, std::to_string(number));
      return assigned;
    }
    RT_CHECK_AS(comm::Starved, !waited, voters, voters == 1 ? " rank is" : " ranks are", " left of at least ",
                options_.min_ranks, ", and no others have come for ", options_.wait_for_ranks.count(), " s");
    const std::string keys[] = {assignment_key(number), kFailureKey, kDoneKey};
    if (!store_->wait_any(keys, Deadline(kPoll))) starved += kPoll;
  }
}

Assignment Membership::propose(int64_t number, const Ballot& ballot) {
  Assignment out{.number = number, .members = ballot.voters, .others = ballot.unknown, .last = ballot.last};
  while (int(out.members.size()) > options_.max_ranks) {
    out.others.push_back(out.members.back().id);
    out.members.pop_back();
  }
  group_by_host(out.members);
  for (int r = 0; r < int(out.members.size()); ++r) {
    const Progress& s = out.members[size_t(r)].progress;
    if (s.step >= 0 && (out.source < 0 || is_ahead(s, out.members[size_t(out.source)].progress))) out.source = r;
  }
  out.cause = !ballot.gone.empty() ? ballot.gone.front() : ballot.cause;
  if (ballot.gone.size() > 1) out.cause += concat(", and ", ballot.gone.size() - 1, " more went");
  if (out.cause.empty() && number > 1 && ballot.newcomers > 0) out.cause = concat(ballot.newcomers, " joined");
  const auto step = [](const Assignment& d) { return d.source < 0 ? -1 : d.members[size_t(d.source)].progress.step; };
  if (ballot.failed && ballot.gone.empty() && step(out) == step(assignment_)) out.stalls = assignment_.stalls + 1;
  if (out.stalls >= kMaxStalls) throw JobFailed(store_->set_once(kFailureKey, out.cause));
  return out;
}

Job Membership::open(int local_rank, int local_size) {
  Job job{.rank = rank(),
          .size = int(assignment_.members.size()),
          .local_rank = local_rank,
          .local_size = local_size,
          .island = island_of(assignment_.members),
          .host = host_};
  job.store = prefix_store(store_, folder_of(assignment_.number));
  job.failure = failure_ = std::make_shared<Failure>();
  job.hub = Hub::open(job.store, job.failure, job.rank, job.size, self_, [change = change_] { change->store(true); });
  return job;
}

void Membership::give_up(const std::string& cause) {
  if (failure_) failure_->raise(cause);
}

void Membership::fail(const std::string& cause) {
  try {
    check();
  } catch (const comm::Evicted&) {
    throw;
  } catch (const CommError&) {  // the store is lost: the others will notice
  }
  store_->set_once(kFailureKey, cause);
  give_up(cause);
}

void Membership::finish() {
  RT_CHECK_AS(comm::Evicted,
              rank() >= 0 && store_->set_once(assignment_key(assignment_.number + 1), kFinished) == kFinished,
              "the other ranks have gone on without this process");
  store_->set(kDoneKey, "1");
}

void Membership::wait_until_done() {
  constexpr Seconds kLook{0.1};
  const std::string keys[] = {kDoneKey, kFailureKey};
  for (;;) {
    if (const auto entry = store_->wait_any(keys, Deadline(kLook))) {
      if (entry->key == kDoneKey) return;
      throw JobFailed(entry->value);
    }
    failure_->check();
  }
}

}  // namespace ringtape::comm
