#include "comm/job/rendezvous.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "comm/base/host_name.h"
#include "comm/health/report.h"
#include "comm/store/private_file.h"
#include "comm/store/socket.h"
#include "comm/store/tcp_store.h"
#include "comm/store/token.h"
#include "comm/transport/host.h"
#include "core/env.h"
#include "core/limits.h"
#include "core/log.h"

namespace ringtape::comm {

namespace {

constexpr int kSpare = 32;             // descriptors in addition to those of the ranks' connections
constexpr Seconds kLeaving{0.5};       // time for other ranks to learn of a failure
constexpr Seconds kStorePatience{60};  // of an existing store

// A store, and its server if this process hosts it; the server ends after the store.
struct Hosted {
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<Store> store;

  Hosted() = default;
  Hosted(Hosted&&) = default;
  ~Hosted() {
    if (!server || !store) return;
    try {
      const bool failed = store->get(kFailureKey).has_value();
      store.reset();
      if (failed) server->stop_within(kLeaving);
    } catch (const std::exception&) {  // the server has already stopped
    }
  }
};
std::shared_ptr<Store> whole(Hosted hosted) {
  const auto all = std::make_shared<Hosted>(std::move(hosted));
  return {all, all->store.get()};
}

std::string self_of(const Place& place) {
  return concat("rank ", place.rank, " (pid ", ::getpid(), " on ", host_name(), ")");
}

// Says for whom this process waits: first after `patience`, then less and less often.
class Reminder {
 public:
  Reminder(std::string whom, Seconds patience) : whom_(std::move(whom)), patience_(patience), next_(patience) {}
  Deadline next() const { return next_; }
  void operator()(const std::string& why) {
    if (!next_.passed()) return;
    log_info("waiting for ", whom_, why);
    patience_ = std::min(2 * patience_, std::max(patience_, Seconds(60)));
    next_ = Deadline(patience_);
  }

 private:
  const std::string whom_;
  Seconds patience_;
  Deadline next_;
};

std::shared_ptr<Store> reach(const StoreAddress& address, Deadline deadline, const std::string& whose,
                             Seconds patience) {
  Reminder remind(concat(whose, " at ", address.host, ":", address.port, ": "), patience);
  return tcp_store(address, deadline, kStorePatience, [&](const std::string& why) { remind(why); });
}

std::shared_ptr<Store> store_at(const std::string& where, const Meeting& meeting, Deadline deadline) {
  if (where.find('/') != std::string::npos) return file_store(where);
  const size_t colon = where.rfind(':');
  const int port = colon == std::string::npos ? 0 : std::atoi(where.c_str() + colon + 1);
  // [::1]:29500
  const bool bracketed = where.starts_with('[') && colon != std::string::npos && where[colon - 1] == ']';
  RT_CHECK_AS(UsageError, port > 0 && port < 65536, "RINGTAPE_STORE=", where,
              ": expected host:port or the path of a folder");
  RT_CHECK_AS(UsageError, !meeting.token.empty(),
              "RINGTAPE_STORE is set, but not RINGTAPE_TOKEN; set it to the token of the store's host");
  const std::string host = bracketed ? where.substr(1, colon - 2) : where.substr(0, colon);
  return reach({host, port, meeting.token}, deadline, "the job's store", meeting.patience);
}

// The host's name may be a public address that no interface of this machine has.
// On every interface if there are several hosts: rank 0's name may lead to another address on its own host (Debian
// writes 127.0.1.1 into /etc/hosts), and hosts may reach it by several. The token protects the store.
std::unique_ptr<StoreServer> serve_at(const Place& place, StoreServer::Options options) {
  options.port = place.port;
  options.host = place.one_host ? place.host : "";
  try {
    return std::make_unique<StoreServer>(options);
  } catch (const CommError& e) {
    if (options.host.empty())
      detail::fail<CommError>({"cannot host the job's store: ", e.what(), "; set another MASTER_PORT on all ranks"});
    log_info("store: ", e.what(), "; trying every interface");
  }
  Place anywhere = place;
  anywhere.one_host = false;
  return serve_at(anywhere, std::move(options));
}

std::shared_ptr<Store> store_over_hosts(const Place& place, const Meeting& meeting, Deadline deadline) {
  RT_CHECK_AS(UsageError, !meeting.token.empty(), place.launcher, " has started this job on several hosts: ",
              "set RINGTAPE_TOKEN to the same secret on all of them, such as what `openssl rand -hex 16` prints");
  RT_CHECK_AS(UsageError, !place.host.empty() && place.port > 0, place.launcher,
              " does not say where rank 0 is: ", "set MASTER_ADDR to its host",
              place.port > 0 ? "" : " and MASTER_PORT to a free port there", ", on every rank");
  Hosted hosted;
  if (place.rank == 0) {
    const std::string lack = lack_of_descriptors(int64_t(place.size) + kSpare);
    RT_CHECK_AS(CommError, lack.empty(), "rank 0 needs a connection to each of ", place.size, " ranks: ", lack);
    hosted.server = serve_at(place, {.token = meeting.token, .name = self_of(place), .heartbeat = meeting.heartbeat});
    log_info("store: hosted by rank 0 at ", place.host, ":", place.port,
             place.one_host ? "" : ", listening on every interface");
  }
  hosted.store = reach({place.host, place.port, meeting.token}, deadline, "rank 0", meeting.patience);
  return whole(std::move(hosted));
}

// The content of the notice: port and token of a store on this host; nullopt if it is not valid.
std::optional<StoreAddress> address_in(const std::string& notice) {
  const size_t space = notice.find(' ');
  if (space == std::string::npos) return std::nullopt;
  return StoreAddress{"127.0.0.1", std::atoi(notice.c_str()), notice.substr(space + 1)};
}

// Removes the notice of a killed rank 0: nothing listens at its address, or soon nothing will, because its connections
// are already closed.
void remove_dead_notice(const Place& place, const Meeting& meeting) noexcept {
  try {
    const std::string path = private_path(meeting.folder, place.job), text = PrivateFile::read(path);
    const auto at = address_in(text);
    if (!at) return;
    for (const Deadline soon(Seconds(0.2)); !refuses(at->host, at->port, soon);
         std::this_thread::sleep_for(Seconds(0.02)))
      if (soon.passed()) return;
    PrivateFile::remove(path, text);
  } catch (const CommError&) {  // not a file of this user
  }
}

// Rank 0 writes port and token to a file that only this user can read, and keeps it until all ranks have come. A file
// of an earlier job leads nowhere, or to a store with another token: then the file is read again.
std::shared_ptr<Store> store_on_host(const Place& place, const Meeting& meeting, Deadline deadline,
                                     std::optional<PrivateFile>& notice) {
  const std::string path = private_path(meeting.folder, place.job);
  Hosted hosted;
  if (place.rank == 0) {
    const StoreServer::Options options{.token = random_token(), .name = self_of(place), .heartbeat = meeting.heartbeat};
    hosted.server = std::make_unique<StoreServer>(options);
    notice.emplace(path, concat(hosted.server->port(), ' ', options.token));
    hosted.store = tcp_store({"127.0.0.1", hosted.server->port(), options.token}, deadline);
    return whole(std::move(hosted));
  }
  Reminder remind("rank 0 on this host: ", meeting.patience);
  for (std::string why = concat("rank 0 has not written ", path);; std::this_thread::sleep_for(Seconds(0.02))) {
    try {
      if (const auto at = address_in(PrivateFile::read(path)))
        return tcp_store(*at, Deadline(std::min(deadline.left(), Seconds(1))));
    } catch (const CommError& e) {
      why = e.what();
    }
    RT_CHECK_AS(CommError, !deadline.passed(), self_of(place), " has not found rank 0: ", why);
    remind(why);
  }
}

// The ranks find each other by a private file.
bool meets_by_notice(const Place& place, const Meeting& meeting) {
  const bool is_told_where = !meeting.token.empty() && place.port > 0 && !place.host.empty();
  return meeting.store.empty() && place.size > 1 && place.one_host && !is_told_where;
}

std::shared_ptr<Store> open_store(const Place& place, const Meeting& meeting, Deadline deadline,
                                  std::optional<PrivateFile>& notice) {
  if (!meeting.store.empty()) return store_at(meeting.store, meeting, deadline);
  if (place.size == 1) return memory_store();
  return meets_by_notice(place, meeting) ? store_on_host(place, meeting, deadline, notice)
                                         : store_over_hosts(place, meeting, deadline);
}

constexpr const char* kComplete = "job/complete";
std::string rank_key(int rank) { return concat("job/rank/", rank); }

// Each rank proposes the number of ranks per host. If proposals differ, or do not match the hosts of neighbouring
// ranks, there are no islands.
constexpr const char* kNoIslands = "job/no islands";
int vote_for_islands(Store& store, const Place& place) {
  const int here = place.local_size;
  const int island = place.size % here == 0 && place.rank % here == place.local_rank ? here : 1;
  const std::string votes[][2] = {{"job/island", std::to_string(island)},
                                  {concat("job/host/", place.rank / island), host_identity("net")}};
  for (const auto& [key, mine] : votes)
    if (store.set_once(key, mine) != mine) store.set(kNoIslands, "1");
  return island;
}

std::string missing_ranks(Store& store, int size) {
  std::string out;
  int missing = 0;
  for (int r = 0; r < size; ++r)
    if (!store.get(rank_key(r)) && ++missing <= 16) out += concat(missing > 1 ? ", " : "", r);
  return concat(missing == 1 ? "rank " : "ranks ", out, missing > 16 ? concat(" and ", missing - 16, " more") : "");
}

}  // namespace

namespace {

// A store whose waits end when the job fails.
class Attentive : public Store {
 public:
  Attentive(std::shared_ptr<Store> store, std::shared_ptr<Failure> failure)
      : store_(std::move(store)), failure_(std::move(failure)) {}
  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return store_->set_once(key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return store_->get(key); }
  std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) override {
    for (;;) {
      failure_->check();
      if (auto entry = store_->wait_any(keys, Deadline(std::min(deadline.left(), kLook)))) return entry;
      if (deadline.passed()) return std::nullopt;
    }
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(key, amount); }
  void erase(const std::string& key) override { store_->erase(key); }
  std::string address() const override { return store_->address(); }
  void will(const std::string& key, const std::string& who) override { store_->will(key, who); }

 private:
  static constexpr Seconds kLook{0.1};
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<Failure> failure_;
};

}  // namespace

Context Job::context(Seconds timeout) const {
  return {.rank = rank,
          .size = size,
          .store = prefix_store(std::make_shared<Attentive>(store, failure), "world"),
          .failure = failure,
          .timeout = timeout,
          .island = island};
}

int meet(Store& store, const Place& place, const std::string& self, Deadline deadline, Seconds patience) {
  const Seconds whole = deadline.left();
  const auto fail = [&](const std::string& why) { throw CommError(store.set_once(kFailureKey, why)); };
  const std::string size = store.set_once("job/size", std::to_string(place.size));
  if (size != std::to_string(place.size))
    fail(concat(self, " expects ", place.size, " ranks, but the ranks before it expect ", size,
                "; start all with the same number (ringtape launch: the same -n on all machines, as in -n 4,2)"));
  const std::string mine = concat(self, '\t', random_token()), first = store.set_once(rank_key(place.rank), mine);
  if (first != mine)
    fail(concat("rank ", place.rank, " was started twice: ", first.substr(0, first.find('\t')), " and ", self,
                "; each process needs its own RANK, and each job its own store"));
  const int island = vote_for_islands(store, place);
  if (store.add("job/present", 1) == place.size) store.set(kComplete, "1");
  const std::string keys[] = {kComplete, kFailureKey};  // after the meeting the hub reports failures
  std::optional<Store::Entry> entry;
  for (Reminder remind("", place.rank == 0 ? patience : whole); !entry && !deadline.passed();) {
    entry = store.wait_any(keys, Deadline(std::min(deadline.left(), remind.next().left())));
    if (!entry && !deadline.passed()) remind(concat(missing_ranks(store, place.size), " of ", place.size));
  }
  if (!entry)
    fail(concat(missing_ranks(store, place.size), " of ", place.size, " did not join within ",
                int64_t(std::ceil(whole.count())), " s"));
  RT_CHECK_AS(CommError, entry->key != kFailureKey, entry->value);
  return store.get(kNoIslands) ? 1 : island;
}

bool note_end(Store& store, int rank, const std::string& how) {
  if (store.get(kComplete)) return true;
  if (!store.get(rank_key(rank))) store.set_once(kFailureKey, concat("rank ", rank, how, " before it joined the job"));
  return false;
}

Job join(const Place& place, const Meeting& meeting, Seconds timeout) {
  const Deadline deadline(timeout);
  Job job{.rank = place.rank,
          .size = place.size,
          .local_rank = place.local_rank,
          .local_size = place.local_size,
          .host = host_name()};
  job.failure = std::make_shared<Failure>();
  std::optional<PrivateFile> notice;
  try {
    job.store = open_store(place, meeting, deadline, notice);
    job.hub = Hub::open(job.store, job.failure, place.rank, place.size, self_of(place));
    job.island = meet(*job.store, place, self_of(place), deadline, meeting.patience);
    return job;
  } catch (const CommError&) {
    if (place.rank != 0 && meets_by_notice(place, meeting)) remove_dead_notice(place, meeting);
    throw;
  }
}

static std::atomic<bool> asked{false};

std::optional<Job> job_from_environment(Seconds timeout) {
  asked = true;
  const auto place = place_of_process();
  if (!place) return std::nullopt;
  Job job =
      join(*place, {.store = env::store(), .token = env::token(), .heartbeat = Seconds(env::heartbeat())}, timeout);
  std::string path = env::dump();
  if (const size_t at = path.find("%r"); at != std::string::npos) path.replace(at, 2, std::to_string(place->rank));
  dump_activity_on_sigquit(path);
  if (!path.empty()) job.failure->on_raise([path](const std::string&) { dump_activity(path); });
  return job;
}

std::shared_ptr<Store> lasting_store(const Place& place, Seconds timeout) {
  asked = true;
  constexpr const char* kHow = "; start it with ringtape launch --elastic, or on a ringtape store by launch --join";
  RT_CHECK_AS(UsageError, std::string_view(place.launcher) != "mpirun",
              "--elastic: mpirun ends all ranks when one ends", kHow);
  const std::string where = env::store();
  RT_CHECK_AS(UsageError, !where.empty() && where.find('/') == std::string::npos, "--elastic: ", place.launcher,
              " gives the ranks no store that outlives each of them", kHow);
  return store_at(where, {.store = where, .token = env::token(), .heartbeat = Seconds(env::heartbeat())},
                  Deadline(timeout));
}

void excuse_from_job(const std::string& cause, Seconds timeout) noexcept {
  if (asked) return;
  try {
    if (const auto job = job_from_environment(timeout))
      job->failure->raise(concat("rank ", job->rank, " on ", job->host, ": ", cause));
  } catch (const std::exception&) {  // nobody waits for this process, or the others end anyway
  }
}

}  // namespace ringtape::comm
