// An operation with kernels of your own, for each instruction set and for GPUs, and all checks of its record.
// Prints:
//   softsign(3) is 0.75
//   its record: all checks passed
#include <ringtape/autograd/create.h>
#include <ringtape/autograd/op_checks.h>
#include <ringtape/autograd/ops.h>
#include <ringtape/autograd/saved.h>
#include <ringtape/autograd/tape.h>

#include <cstdio>

#include "softsign.h"

using namespace ringtape;

static Tensor softsign(const Tensor& x) {
  RT_CHECK_AS(DTypeError, is_float(x.dtype()), "softsign: expected floating point, got ", x.dtype());
  const Tensor y = empty_like(x);
  softsign_forward(y, x);
  return record("softsign", {x}, y, [x = save(x)](const Tensor& dy) -> Tensors {
    const Tensor dx = empty_like(dy);
    softsign_backward(dx, *x, dy);
    return {dx};
  });
}

static Tensor call(const Tensors& inputs) { return softsign(inputs[0]); }
static const RegisterOp registered{{
    .name = "softsign",
    .samples = {{"odd", {{{3, 5}, -2, 2}}, call}, {"large", {{{67, 1000}, -2, 2}}, call}, {"empty", {{{0, 5}}}, call}},
    .invalid = {{"whole numbers", {{{3}, 0, 9, Fill::index}}, call}},
    .kinks = {0},  // where it has no second derivative
}};

int main() {
  std::printf("softsign(3) is %g\n", softsign(full({1}, 3)).item());
  std::string failed;
  for (const Op& op : ops())
    if (std::string_view(op.name) == "softsign")
      for (const Device device : {Device{}, Device{DeviceType::cuda}})
        if (available(device)) failed += check_op(op, device);
  std::printf("its record: %s\n", failed.empty() ? "all checks passed" : failed.c_str());
  return failed.empty() ? 0 : 1;
}
