#include "autograd/ops/common.h"

namespace ringtape {

Tensor to_nhwc(const Tensor& x) {
  RT_CHECK_AS(ShapeError, x.rank() == 4, "to_nhwc: expected images (N, C, H, W), got ", x.shape());
  return contiguous(permute(x, {0, 2, 3, 1}));
}

Tensor to_nchw(const Tensor& x) {
  RT_CHECK_AS(ShapeError, x.rank() == 4, "to_nchw: expected images (N, H, W, C), got ", x.shape());
  return contiguous(permute(x, {0, 3, 1, 2}));
}

using Sizes = std::initializer_list<int64_t>;
#define RT_LAYOUT_RECORD(op, small, large)                                                       \
  static const RegisterOp register_##op {                                                        \
    {                                                                                            \
      .name = #op,                                                                               \
      .samples = {{"few_channels", {{{2, 3, 5, 4}}}, [](const Tensors& t) { return op(t[0]); }}, \
                  {"one", {{{2, 1, 5, 1}}}, [](const Tensors& t) { return op(t[0]); }},          \
                  {"tiles", {{{2, 35, 3, 37}}}, [](const Tensors& t) { return op(t[0]); }},      \
                  {"empty", {{{0, 3, 4, 5}}}, [](const Tensors& t) { return op(t[0]); }}},       \
      .workloads = {{"128x3x32x32", {{small}}, [](const Tensors& t) { return op(t[0]); }},       \
                    {"128x64x32x32", {{large}}, [](const Tensors& t) { return op(t[0]); }}},     \
      .invalid = {{"rank", {{{2, 3, 4}}}, [](const Tensors& t) { return op(t[0]); }}},           \
    }                                                                                            \
  }
RT_LAYOUT_RECORD(to_nhwc, (Sizes{128, 3, 32, 32}), (Sizes{128, 64, 32, 32}));
RT_LAYOUT_RECORD(to_nchw, (Sizes{128, 32, 32, 3}), (Sizes{128, 32, 32, 64}));
#undef RT_LAYOUT_RECORD

}  // namespace ringtape
