#include "autograd/inplace.h"

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "kernels/copy.h"
#include "kernels/fill.h"

namespace ringtape {

static void begin_write(const Tensor& x, const char* op) {
  RT_CHECK_AS(AutogradError, !x.node() || !grad_enabled(), op, " on a tensor in a recorded graph; write to x.detach(), or inside NoGrad");
  RT_CHECK_AS(AutogradError, !x.node() || !x.node()->backward, op, " on the result of ", x.node()->name, "; write to x.detach() if that is meant");
  x.storage()->written_by(op);
}

const Tensor& fill_(const Tensor& x, double value) {
  begin_write(x, "fill_");
  fill(x, value);
  return x;
}

const Tensor& copy_(const Tensor& x, const Tensor& from) {
  const NoGrad no_grad;
  begin_write(x, "copy_");
  copy(x, expand(from, x.shape()));
  return x;
}

const Tensor& add_(const Tensor& x, const Tensor& y, double scale) {
  const Tensor value = y.detach();
  RT_CHECK_AS(ShapeError, broadcast(x.shape(), y.shape(), "add_") == x.shape(), "add_: ", y.shape(), " into ", x.shape());
  RT_CHECK_AS(DTypeError, x.dtype() == y.dtype(), "add_: ", y.dtype(), " into ", x.dtype());
  begin_write(x, "add_");
  add_forward(x, x, scale == 1 ? value : value * scale);
  return x;
}

const Tensor& mul_(const Tensor& x, double factor) {
  begin_write(x, "mul_");
  mul_forward(x, x, full({}, factor, x.dtype(), x.device()));
  return x;
}

}  // namespace ringtape
