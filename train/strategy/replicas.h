#pragma once
#include "core/settings.h"

namespace ringtape {

// Replicas of a model on the devices of a process (dp, ddp2).
struct ReplicaOptions {
  bool persistent = false;
};
void visit(Fields& f, ReplicaOptions& o);

inline bool keeps_replicas(const Settings& settings) { return settings.as<ReplicaOptions>().persistent; }

}  // namespace ringtape
