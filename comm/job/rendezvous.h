#pragma once
#include <memory>
#include <optional>
#include <string>

#include "comm/job/hub.h"
#include "comm/job/place.h"
#include "comm/transport.h"

namespace ringtape::comm {

// A process of a job that has found the others. Destroying it leaves the job properly.
struct Job {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host
  int island = 1;      // as in Context: the ranks of a host, if all hosts have equally many consecutive ranks
  std::string host{};  // name of this host
  std::shared_ptr<Store> store{};
  std::shared_ptr<Failure> failure{};  // raised when any process of the job fails, dies or stops answering
  std::shared_ptr<Hub> hub{};

  // For a transport of all ranks. A wait for a key of its store ends at once when the job fails.
  Context context(Seconds timeout = Seconds(600)) const;
};

// The job for which a launcher started this process, once all its ranks have come; nullopt without a launcher. The
// ranks meet at:
//   RINGTAPE_STORE=host:port   a StoreServer hosted by another program (ringtape launch), with RINGTAPE_TOKEN
//   RINGTAPE_STORE=/a/folder   a folder that all ranks can access
//   otherwise                  rank 0 hosts it: at MASTER_ADDR:MASTER_PORT if RINGTAPE_TOKEN is set, else, on one host,
//                              on a free port of the loopback interface, which is written with a random token into a
//                              private file
// Throws CommError, on every rank, naming ranks that did not come by the deadline, that came twice, or that expect
// another size.
std::optional<Job> job_from_environment(Seconds timeout = Seconds(300));

// The store of an elastic job, RINGTAPE_STORE=host:port, which outlives each of its processes. Throws UsageError if
// there is none, or if the launcher ends all processes when one ends; CommError if it is not reached by the deadline.
std::shared_ptr<Store> lasting_store(const Place& place, Seconds timeout = Seconds(300));

// For a process that has failed before it called job_from_environment(): once the waiting ranks are there, tells them
// why this process does not join. Does nothing without a launcher, or after job_from_environment().
void excuse_from_job(const std::string& cause, Seconds timeout = Seconds(60)) noexcept;

// As job_from_environment, with a given place and given settings.
struct Meeting {
  std::string store{};  // as RINGTAPE_STORE
  std::string token{};
  std::string folder{};  // of the private files; empty: $XDG_RUNTIME_DIR, /run/user/<uid> or /tmp/ringtape-<uid>
  Seconds heartbeat{10};
  Seconds patience{
      5};  // before the first message about whom this process waits for; the time doubles with each message
};
Job join(const Place& place, const Meeting& meeting, Seconds timeout);

// Only the check, over an existing store. `self` describes this process. After `patience` rank 0 says for whom it
// waits. Returns Context::island.
int meet(Store& store, const Place& place, const std::string& self, Deadline deadline, Seconds patience = Seconds(5));

// For a launcher, when rank `rank` has ended as `how` says. If it never joined and some rank is still missing, the
// others fail at once instead of waiting for it. Returns whether all ranks have joined: then no end matters any more.
bool note_end(Store& store, int rank, const std::string& how);

}  // namespace ringtape::comm
