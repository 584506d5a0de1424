#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// rank[n] (i64) = number of classes that beat the label in scores (N, C), contiguous: 0 is a top-1 hit, below k a top-k
// hit. An equal score at a lower index beats; all beat a label with a NaN score.
RT_KERNEL(label_rank, void(View rank, View scores, View labels));

}  // namespace ringtape
