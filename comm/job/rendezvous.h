#pragma once
#include <memory>
#include <optional>
#include <string>

#include "comm/job/hub.h"
#include "comm/job/place.h"
#include "comm/transport.h"

namespace ringtape::comm {

// A process of a job that has found the others. Destroying it is its goodbye.
struct Job {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host
  int island = 1;  // of the context: the ranks of a host, where all hosts have equally many, one after the other
  std::string host{};                  // this one's name
  std::shared_ptr<Store> store{};
  std::shared_ptr<Failure> failure{};  // raised when any process of the job fails, dies or falls silent
  std::shared_ptr<Hub> hub{};

  // For a transport of all ranks. Whoever waits for a key of its store learns at once when the job fails.
  Context context(Seconds timeout = Seconds(600)) const;
};

// The job that a launcher started this process for, once all its ranks are there; nothing if none did. Where they meet:
//   RINGTAPE_STORE=host:port   a StoreServer that somebody else hosts (ringtape launch), with RINGTAPE_TOKEN
//   RINGTAPE_STORE=/a/folder   a folder that all see
//   otherwise                  rank 0 hosts it: at MASTER_ADDR:MASTER_PORT if RINGTAPE_TOKEN is set, else, on one host,
//                              on a free port of the loopback interface, which with a random token is left in a
//                              private file
// Throws CommError, on every rank, naming ranks that have not come by the deadline, that came twice,
// or that expect another size.
std::optional<Job> job_from_environment(Seconds timeout = Seconds(300));

// For a process that has failed before it asked for its job: tells the ranks that wait for it why it does not come,
// once they are there. Does nothing if no launcher started it, or if it has asked.
void excuse_from_job(const std::string& cause, Seconds timeout = Seconds(60)) noexcept;

// job_from_environment, for a place and settings that are known.
struct Meeting {
  std::string store{};   // as RINGTAPE_STORE
  std::string token{};
  std::string folder{};  // of the private files; empty: $XDG_RUNTIME_DIR, /run/user/<uid> or /tmp/ringtape-<uid>
  Seconds heartbeat{10};
  Seconds patience{
      5};  // without a word about whom this process waits for; after that it says so, each time after twice as long
};
Job join(const Place& place, const Meeting& meeting, Seconds timeout);

// The check alone, over a store that is there. `self` describes this process; rank 0 says after `patience` whom it
// waits for. Returns Context::island.
int meet(Store& store, const Place& place, const std::string& self, Deadline deadline, Seconds patience = Seconds(5));

}  // namespace ringtape::comm
