#pragma once
#include "kernels/kernel.h"

namespace ringtape {

// Attention of A x H heads: q (A, H, N, D), k (A, H, M, D), v (A, H, M, E), y (A, H, N, E), with any strides, of one
// floating dtype; lse (A, H, N), contiguous, f32 or, of f64, f64. For each head
//   S = scale q k^T,   lse[i] = logsumexp_j S[i, j],   y[i] = sum over j of exp(S[i, j] - lse[i]) v[j]
// causal: over j <= i alone. scale > 0. S is computed in tiles and never stored. Without keys (M = 0) y is 0.
RT_KERNEL(attention_forward, void(View y, View lse, View q, View k, View v, double scale, bool causal));

// The gradients of q, k and v, with their shapes and any strides, from those of y and what forward gave.
RT_KERNEL(attention_backward, void(View dq, View dk, View dv, View dy, View y, View lse, View q, View k, View v,
                                   double scale, bool causal));

}  // namespace ringtape
