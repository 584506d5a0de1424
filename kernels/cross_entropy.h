#pragma once
#include "kernels/kernel.h"

// Losses of classes: logits (N, C), contiguous. weights (C), contiguous, are the classes' factors w, or have no data
// for 1. loss, norms, weights and dloss have the logits' dtype, or f32 for 16-bit logits. s is the label smoothing.
namespace ringtape {

struct CrossEntropyRule {
  double smoothing = 0;
  int64_t ignored = -100;  // samples with this label have loss 0 and no share
  double scale = 1;        // of gradients
};

// Softmax cross-entropy with labels (N) i64 in [0, C), or `ignored`. loss (2, N):
//   loss[0, n] = - (1 - s) w[label] log p[n, label] - s / C sum over c of w[c] log p[n, c],  p = softmax(logits)
//   loss[1, n] = w[label], the sample's share of a mean
//   norms[n] = max(logits[n, :]), sum(exp(logits[n, :] - max))
// (two numbers, since their logsumexp as one number would lose digits of the sum if logits are large).
// Another label throws UsageError on the CPU; on CUDA it gives a NaN loss.
RT_KERNEL(cross_entropy_forward,
          void(View loss, View norms, View logits, View labels, View weights, CrossEntropyRule rule));
// dlogits = scale dloss[n] / total dloss[0, n]/dlogits. dloss (N) may have stride 0; total has one element, or no data
// for 1.
RT_KERNEL(cross_entropy_backward, void(View dlogits, View logits, View norms, View labels, View weights, View dloss,
                                       View total, CrossEntropyRule rule));

// The same with targets q (N, C), contiguous and of the logits' dtype:
//   loss[n] = - sum over c of w[c] ((1 - s) q[n, c] + s / C) log p[n, c]
RT_KERNEL(soft_cross_entropy_forward,
          void(View loss, View norms, View logits, View targets, View weights, CrossEntropyRule rule));
// dtargets has no data if it is not wanted.
RT_KERNEL(soft_cross_entropy_backward, void(View dlogits, View dtargets, View logits, View norms, View targets,
                                            View weights, View dloss, CrossEntropyRule rule));

// loss[0, n] = - w[label] log_p[n, label], loss[1, n] = w[label]; labels as above.
RT_KERNEL(nll_forward, void(View loss, View log_p, View labels, View weights, CrossEntropyRule rule));
RT_KERNEL(nll_backward, void(View dlog_p, View labels, View weights, View dloss, View total, CrossEntropyRule rule));

// y[0] = sum(loss[0, :]) / y[1], y[1] = sum(loss[1, :]), for loss (2, N) and y (2).
RT_KERNEL(weighted_mean, void(View y, View loss));

}  // namespace ringtape
