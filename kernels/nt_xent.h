#pragma once
#include "core/dtype.h"
#include "kernels/kernel.h"

namespace ringtape {

// Which rows of x and y show the same images. `rows` rows of x from x_first on, and of y from y_first on, are the same
// embeddings: first those of one view of all images, then those of the other view. Other rows of x have no counterpart:
// -1.
struct ViewPairs {
  int64_t rows, x_first, y_first;
  RT_HD int64_t same(int64_t i) const { return in(i) ? y_first + i - x_first : -1; }
  RT_HD int64_t other(int64_t i) const {
    const int64_t after = i - x_first + rows / 2;
    return in(i) ? y_first + (after < rows ? after : after - rows) : -1;
  }
  RT_HD bool in(int64_t i) const { return i >= x_first && i < x_first + rows; }
  ViewPairs swapped() const { return {rows, y_first, x_first}; }
};

// With S = x y^T scale, embeddings x (R, D) of all pairs and candidates y (M, D), for each row:
//   lse[i] = logsumexp over j != same(i) of S[i, j],   loss[i] = lse[i] - S[i, other(i)],   (R) both
// All contiguous, all f32 or all f64. S is computed in tiles and never stored. With Arithmetic::tf32, D % 4 = 0 and x
// and y are aligned to 16 bytes, tensor cores compute it; backward then stores the gradients by 4 million scores at a
// time, or by 128 of each row. M > 1.
RT_KERNEL(nt_xent_forward, void(View loss, View lse, View x, View y, ViewPairs pairs, double scale));

// One side of the gradient of a mean over rows, where x or y holds the queries. For S as above, x (N, D) and y (M, D):
//   dx[i] = dloss scale / pairs.rows  sum over j != same(i) of  (g(x_lse[i]) + g(y_lse[j])) y[j]
//   g(l) = exp(S[i, j] - l) - [j = other(i)]
// Terms whose lse has no data are left out. Pass x_lse (N) if x holds the queries, y_lse (M) if y does, and both if
// they are the same tensor. dloss has one element.
RT_KERNEL(nt_xent_backward,
          void(View dx, View x, View y, View x_lse, View y_lse, View dloss, ViewPairs pairs, double scale));

}  // namespace ringtape
