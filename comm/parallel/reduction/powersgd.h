#pragma once
#include "core/fields.h"

namespace ringtape::comm {

struct PowerSgdOptions {
  int64_t rank = 2;    // of the matrices that stand for gradients
  int64_t start = 10;  // steps before the first that is compressed
};
void visit(Fields& f, PowerSgdOptions& o);

}  // namespace ringtape::comm
