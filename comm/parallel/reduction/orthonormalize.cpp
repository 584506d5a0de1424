#include "comm/parallel/reduction/orthonormalize.h"

#include <limits>

#include "kernels/binary.h"
#include "kernels/compare.h"
#include "kernels/fill.h"
#include "kernels/matmul.h"
#include "kernels/unary.h"
#include "kernels/where.h"

namespace ringtape::comm {

static Tensor rows(const Tensor& x, int64_t begin, int64_t end) {
  return x.window({end - begin, x.dim(1)}, {x.dim(1), 1}, begin * x.dim(1));
}

static Tensor scalar(const Tensor& like, double value) {
  const Tensor y({1, 1}, like.dtype(), like.device());
  fill(y, value);
  return y;
}

// Rows with a norm of at most `least` when they are processed become zeros.
static void gram_schmidt(const Tensor& x, double least) {
  const int64_t r = x.dim(0), n = x.dim(1);
  const Tensor limit = scalar(x, least), infinity = scalar(x, std::numeric_limits<double>::infinity());
  const Tensor length = empty_like(limit), gone({1, 1}, DType::b8, x.device());
  for (int64_t i = 0; i < r; ++i) {
    const Tensor row = rows(x, i, i + 1), rest = rows(x, i + 1, r);
    sqrt_forward(length, square_rows(row));
    less_equal_forward(gone, length, limit);
    where_forward(length, gone, infinity, length);
    div_forward(row, row, length);
    if (rest.size() == 0) continue;
    const Tensor along({rest.dim(0), 1}, x.dtype(), x.device()), part = empty_like(rest);
    matmul_forward(along.window({1, rest.dim(0), 1}, {rest.dim(0), 1, 1}),
                   rest.window({1, rest.dim(0), n}, {rest.size(), n, 1}), row.window({1, n, 1}, {n, 1, n}));
    mul_forward(part, along, row);
    sub_forward(rest, rest, part);
  }
}

Tensor square_rows(const Tensor& x) {
  const int64_t r = x.dim(0), n = x.dim(1);
  const Tensor y({r, 1}, x.dtype(), x.device());
  matmul_forward(y.window({r, 1, 1}, {1, 1, 1}), x.window({r, 1, n}, {n, n, 1}), x.window({r, n, 1}, {n, 1, 1}));
  return y;
}

void orthonormalize(const Tensor& x) {
  gram_schmidt(x, 0);
  gram_schmidt(x, 0.1);  // of rows with norm 1
}

}  // namespace ringtape::comm
