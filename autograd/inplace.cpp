#include "autograd/inplace.h"

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/ops/common.h"
#include "autograd/tape.h"
#include "kernels/binary.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "kernels/l2_normalize.h"
#include "kernels/optimizer.h"

namespace ringtape {

static void begin_write(const Tensor& x, const char* op) {
  RT_CHECK_AS(ShapeError, x.defined(), op, ": an undefined tensor");
  RT_CHECK_AS(AutogradError, !x.node() || !grad_enabled(), op,
              " on a tensor in a recorded graph; write to x.detach(), or inside NoGrad");
  RT_CHECK_AS(AutogradError, !x.node() || !x.node()->backward, op, " on the result of ", x.node()->name,
              "; write to x.detach() if this is intended");
  for (int i = 0; i < x.rank(); ++i)
    RT_CHECK_AS(ShapeError, x.strides()[i] != 0 || x.shape()[i] <= 1, op,
                " into an expanded tensor, whose elements share memory");
  x.storage()->written_by(op);
}

// The values to write into x, safe to read during the write: a copy if the two overlap with different layouts.
static Tensor source(const Tensor& x, const Tensor& from, const char* op) {
  RT_CHECK_AS(ShapeError, from.defined(), op, ": an undefined tensor");
  RT_CHECK_AS(ShapeError, broadcast(x.shape(), from.shape(), op) == x.shape(), op, ": ", from.shape(), " into ",
              x.shape());
  const Tensor value = from.detach();
  const bool same = View(value).data == View(x).data && value.shape() == x.shape() && value.strides() == x.strides();
  if (same || value.storage() != x.storage()) return value;
  Tensor apart = empty_like(value);
  copy(apart, value);
  return apart;
}

const Tensor& fill_(const Tensor& x, double value) {
  begin_write(x, "fill_");
  detail::check_number("fill_", value, x.dtype());
  fill(x, value);
  return x;
}

const Tensor& copy_(const Tensor& x, const Tensor& from) {
  begin_write(x, "copy_");
  copy(x, expand(source(x, from, "copy_"), x.shape()));
  return x;
}

const Tensor& add_(const Tensor& x, const Tensor& y, double scale) {
  begin_write(x, "add_");
  RT_CHECK_AS(DTypeError, is_float(x.dtype()) && x.dtype() == y.dtype(), "add_: ", y.dtype(), " into ", x.dtype());
  const Tensor value = source(x, y, "add_");
  add_forward(x, x, scale == 1 ? value : cast(value, wide_dtype(x)) * scale);
  return x;
}

const Tensor& mul_(const Tensor& x, double factor) {
  begin_write(x, "mul_");
  RT_CHECK_AS(DTypeError, is_float(x.dtype()), "mul_ on ", x.dtype());
  mul_forward(x, x, full({}, factor, wide_dtype(x), x.device()));
  return x;
}

const Tensor& l2_normalize_(const Tensor& x, double eps) {
  begin_write(x, "l2_normalize_");
  RT_CHECK_AS(ShapeError, x.rank() > 0 && x.contiguous(), "l2_normalize_: expected contiguous rows, got ", x.shape(),
              " with strides ", x.strides());
  RT_CHECK_AS(DTypeError, is_float(x.dtype()), "l2_normalize_ on ", x.dtype());
  const Tensor norm({x.size() / std::max<int64_t>(x.dim(-1), 1)}, wide_dtype(x), x.device());
  l2_normalize_forward(x, norm, x, eps);
  return x;
}

// Distance in elements from the first of x to the first of y; -1 if y is not after x on the same storage.
static int64_t distance(const Tensor& x, const Tensor& y) {
  if (x.storage() != y.storage()) return -1;
  const auto bytes = static_cast<const char*>(View(y).data) - static_cast<const char*>(View(x).data);
  return bytes >= 0 ? bytes / int64_t(size_of(x.dtype())) : -1;
}

void average_(const Tensors& averages, const Tensors& xs, double decay) {
  RT_CHECK_AS(ShapeError, averages.size() == xs.size(), "average_: ", xs.size(), " tensors into ", averages.size());
  for (size_t i = 0; i < xs.size(); ++i) {
    RT_CHECK_AS(ShapeError, averages[i].defined() && xs[i].defined(), "average_: an undefined tensor");
    begin_write(averages[i], "average_");
    RT_CHECK_AS(ShapeError, averages[i].shape() == xs[i].shape() && averages[i].contiguous() && xs[i].contiguous(),
                "average_: ", xs[i].shape(), " into ", averages[i].shape(), "; both contiguous");
    RT_CHECK_AS(DTypeError, averages[i].dtype() == xs[i].dtype(), "average_: ", xs[i].dtype(), " into ",
                averages[i].dtype());
  }
  for (size_t begin = 0, end; begin < xs.size(); begin = end) {
    int64_t size = xs[begin].size();
    for (end = begin + 1; end < xs.size(); size += xs[end++].size())
      if (distance(xs[begin], xs[end]) != size || distance(averages[begin], averages[end]) != size) break;
    ema_step(averages[begin].window({size}, {1}), xs[begin].window({size}, {1}), decay);
  }
}

}  // namespace ringtape
