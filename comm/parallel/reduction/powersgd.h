#pragma once
#include "core/fields.h"

namespace ringtape::comm {

struct PowerSgdOptions {
  int64_t rank = 2;    // of the matrices that replace gradients
  int64_t start = 10;  // number of steps before the first compressed one
};
void visit(Fields& f, PowerSgdOptions& o);

}  // namespace ringtape::comm
