#pragma once
#include "comm/launch/launch.h"
#include "comm/store/store.h"

namespace ringtape::comm {

// How the launchers of an elastic job agree: by these keys of the job's store. The first launcher begins the job; later
// ones join it, on any machine. What its processes agree on is in comm/job/membership.h.

// The command line of all ranks, set once: its words, separated by kWordEnd. The first word is empty for a ringtape
// command. Everyone who has the job's token reads it, so it must not have secrets.
inline constexpr const char* kCommandKey = "launch/command";
inline constexpr char kWordEnd = '\x1f';
// Set once before kCommandKey: how many ranks the first launcher starts, all its nodes together. Training begins when
// they are there.
inline constexpr const char* kRanksKey = "launch/ranks";
// A counter: each launcher adds its number of ranks, and the RANK of its first rank is what was there before.
inline constexpr const char* kSlotsKey = "launch/slots";

// Sets the keys, unless they are set, and takes ranks; returns the RANK of the first. Throws UsageError if the job has
// another command.
int begin_job(Store& store, const Launch& launch);

// Connects to the store at master_addr:master_port, and sets `base`. If `command` is empty, it becomes that of the job,
// which another launcher begins; otherwise this launcher begins the job if no other has. Waits for the store and for
// the command at most for `patience`. Throws UsageError, CommError.
void join_job(Launch& launch, Seconds patience = Seconds(300));

// Of who hosts the store: if the job is done, waits until all ranks that launchers start have come and can learn of
// that, at most for `patience`. A rank that finds no store any more would wait for one.
void await_latecomers(Store& store, Seconds patience = Seconds(10));

}  // namespace ringtape::comm
