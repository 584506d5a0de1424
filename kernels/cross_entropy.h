#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// Softmax cross-entropy of logits (N, C), contiguous, with labels (N) i64 in [0, C), for label smoothing s:
//   loss[n] = logsumexp(logits[n, :]) - (1 - s) logits[n, label] - s mean(logits[n, :])
//   norms[n] = max(logits[n, :]), sum(exp(logits[n, :] - max))
// (two numbers, since their logsumexp as one number would lose digits of the sum if logits are large).
// loss (N) and norms (N, 2) have the logits' dtype, or f32 for 16-bit logits.
// A label outside [0, C) throws UsageError on the CPU; on CUDA it gives a NaN loss.
RT_KERNEL(cross_entropy_forward, void(View loss, View norms, View logits, View labels, double smoothing));

// dlogits[n, c] = scale dloss[n] (softmax(logits)[n, c] - (1 - s)[c = label] - s / C). dloss may have stride 0.
RT_KERNEL(cross_entropy_backward,
          void(View dlogits, View logits, View norms, View labels, View dloss, double smoothing, double scale));

}  // namespace ringtape
