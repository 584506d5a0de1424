#include "train/strategy/replicas.h"

namespace ringtape {

void visit(Fields& f, ReplicaOptions& o) {
  f("dp-persistent", o.persistent,
    {.help = "keep the replicas and send them only what has changed, instead of everything at each step",
     .scope = FieldScope::rank,
     .may_change = true});
}

}  // namespace ringtape
