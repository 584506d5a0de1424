#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// rank[n] (i64) = how many classes beat the label's own in scores (N, C), contiguous: 0 for a top-1 hit, below k for a
// top-k hit. An equal score at a lower index beats; a label with a NaN score is beaten by all.
RT_KERNEL(label_rank, void(View rank, View scores, View labels));

}  // namespace ringtape
