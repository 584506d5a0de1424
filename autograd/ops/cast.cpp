#include "autograd/ops/common.h"
#include "kernels/copy.h"

namespace ringtape {

Tensor cast(const Tensor& x, DType dtype) {
  RT_CHECK_AS(ShapeError, x.defined(), "cast: an undefined tensor");
  if (x.dtype() == dtype) return x;
  Tensor y = x.node() && x.node()->converted ? x.node()->converted(dtype) : Tensor();
  if (!y.defined()) {
    y = Tensor(x.shape(), dtype, x.device());
    copy(y, x);
  }
  if (!is_float(dtype)) return y;
  return record("cast", {x}, y, [own = x.dtype()](const Tensor& dy) -> Tensors {
    Tensor dx = empty_grad(0, dy.shape(), own, dy.device());
    copy(dx, dy);
    return {dx};
  });
}

static const RegisterOp register_cast{{
    .name = "cast",
    .samples = {{"to_f64", {{{3, 5}}}, [](const Tensors& t) { return cast(t[0], DType::f64); }},
                {"empty", {{{0, 5}}}, [](const Tensors& t) { return cast(t[0], DType::f64); }},
                {"from_mask", {{{3, 5}, 0, 1, Fill::mask}}, [](const Tensors& t) { return cast(t[0], DType::f32); }},
                {"from_index",
                 {{{3, 5}, -9, 9, Fill::index}},
                 [](const Tensors& t) { return cast(t[0], DType::f64); }}},
    .workloads = {{"f32_to_bf16_4096x4096",
                   {{{4096, 4096}}},
                   [](const Tensors& t) { return cast(t[0], DType::bf16); }}},
}};

}  // namespace ringtape
