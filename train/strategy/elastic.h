#pragma once
#include "core/fields.h"

namespace ringtape {

// A training whose ranks come and go, while the others go on (comm/job/membership.h).
struct ElasticOptions {
  bool on = false;
  int64_t min_ranks = 1;
  double wait_for_ranks = 300;  // seconds
  double step_timeout = 0;      // seconds; 0: as long as --comm-timeout
};
void visit(Fields& f, ElasticOptions& o);

}  // namespace ringtape
