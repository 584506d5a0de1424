#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// Softmax cross-entropy of logits (N, C), contiguous, with labels (N) i64 in [0, C), for label smoothing s:
//   loss[n] = logsumexp(logits[n, :]) - (1 - s) logits[n, label] - s mean(logits[n, :])
//   norms[n] = max(logits[n, :]), sum(exp(logits[n, :] - max)): their logsumexp as one number would have lost the digits of the sum
//   where logits are large
// loss (N) and norms (N, 2) are of the logits' dtype, except that for 16-bit logits both are f32.
// A label outside [0, C) throws UsageError on the CPU; on CUDA it gives a NaN loss.
RT_KERNEL(cross_entropy_forward, void(View loss, View norms, View logits, View labels, double smoothing));

// dlogits[n, c] = scale dloss[n] (softmax(logits)[n, c] - (1 - s)[c = label] - s / C). dloss may have stride 0.
RT_KERNEL(cross_entropy_backward,
          void(View dlogits, View logits, View norms, View labels, View dloss, double smoothing, double scale));

}  // namespace ringtape
