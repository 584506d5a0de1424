#include "train/strategy/elastic.h"

namespace ringtape {

void visit(Fields& f, ElasticOptions& o) {
  f("elastic", o.on,
    {.help = "ranks may die, leave and join: the others go on, without a restart; ringtape launch --elastic gives it",
     .scope = FieldScope::invocation});
  f("min-ranks", o.min_ranks,
    {.help = "elastic: with fewer ranks the training waits for others, then saves a checkpoint and ends",
     .unit = "N",
     .range = {1, 4096},
     .may_change = true});
  f("wait-for-ranks", o.wait_for_ranks,
    {.help = "elastic: how long fewer than --min-ranks wait for others",
     .unit = "SECONDS",
     .range = kReal,
     .may_change = true});
  f("step-timeout", o.step_timeout,
    {.help = "elastic: the others go on without a rank that keeps them waiting for so long; not shorter than an "
             "evaluation or a checkpoint takes",
     .unit = "SECONDS",
     .range = kReal,
     .automatic = "--comm-timeout",
     .may_change = true});
}

}  // namespace ringtape
