#include "kernels/pool.h"

#include "autograd/ops/common.h"

namespace ringtape {

static Shape pool_output_shape(const Tensor& x, int64_t r, int64_t s, const Window& p, const char* op) {
  check_float(x, op);
  RT_CHECK_AS(ShapeError, x.rank() == 4, op, ": expected images (N, H, W, C), got ", x.shape());
  RT_CHECK_AS(UsageError,
              r >= 1 && s >= 1 && p.stride_h >= 1 && p.stride_w >= 1 && p.dilation_h >= 1 && p.dilation_w >= 1, op,
              ": sizes, strides and dilations must be at least 1; got a window of ", r, "x", s, ", stride ", p.stride_h,
              "x", p.stride_w, ", dilation ", p.dilation_h, "x", p.dilation_w);
  const auto half = [](int64_t kernel, int64_t dilation) { return (dilation * (kernel - 1) + 1) / 2; };
  RT_CHECK_AS(UsageError,
              p.pad_h >= 0 && p.pad_w >= 0 && p.pad_h <= half(r, p.dilation_h) && p.pad_w <= half(s, p.dilation_w), op,
              ": padding must be between 0 and half of the window; got ", p.pad_h, "x", p.pad_w, " for ", r, "x", s);
  const Shape y{x.shape()[0], p.rows(x.shape()[1], r), p.columns(x.shape()[2], s), x.shape()[3]};
  RT_CHECK_AS(ShapeError, y[1] > 0 && y[2] > 0, op, ": a window of ", r, "x", s, " does not fit into images ",
              x.shape());
  return y;
}

Tensor max_pool2d(const Tensor& x0, int64_t r, int64_t s, const Window& window) {
  const Shape shape = pool_output_shape(x0, r, s, window, "max_pool2d");
  const Tensor x = contiguous(x0), y(shape, x.dtype(), x.device()), index(shape, DType::i32, x.device());
  max_pool2d_forward(y, index, x, r, s, window);
  describe([&] { return OpAttributes{attribute_of(window), {"size", std::vector<int64_t>{r, s}}}; });
  return record("max_pool2d", {x}, y,
                [index = save(index), own = x.shape(), r, s, window](const Tensor& dy) -> Tensors {
                  const Tensor dx(own, dy.dtype(), dy.device());
                  max_pool2d_backward(dx, contiguous(dy), *index, r, s, window);
                  return {dx};
                });
}

Tensor avg_pool2d(const Tensor& x0, int64_t r, int64_t s, const Window& window) {
  const Shape shape = pool_output_shape(x0, r, s, window, "avg_pool2d");
  const Tensor x = contiguous(x0), y(shape, x.dtype(), x.device());
  avg_pool2d_forward(y, x, r, s, window);
  describe([&] { return OpAttributes{attribute_of(window), {"size", std::vector<int64_t>{r, s}}}; });
  return record("avg_pool2d", {x}, y, [own = x.shape(), r, s, window](const Tensor& dy) -> Tensors {
    const Tensor dx(own, dy.dtype(), dy.device());
    avg_pool2d_backward(dx, contiguous(dy), r, s, window);
    return {dx};
  });
}

// For an image of one row it covers only padding: the maximum is -inf, for which finite differences fail.
constexpr Window kWide{2, 4, 1, 1, 2, 2};

// Random inputs have no equal elements, except where a layout repeats the images.
#define RT_POOL_RECORD(op)                                                                                             \
  static const RegisterOp register_##op {                                                                              \
    {                                                                                                                  \
      .name = #op,                                                                                                     \
      .samples =                                                                                                       \
          {{"2x2", {{{2, 4, 6, 3}}}, [](const Tensors& t) { return op(t[0], 2, 2, square_window(2)); }},               \
           {"3x3_padded", {{{2, 7, 5, 4}}}, [](const Tensors& t) { return op(t[0], 3, 3, square_window(2, 1)); }},     \
           {"overlapping", {{{1, 5, 6, 2}}}, [](const Tensors& t) { return op(t[0], 3, 3, square_window(1)); }},       \
           {"rest", {{{1, 7, 5, 5}}}, [](const Tensors& t) { return op(t[0], 2, 2, square_window(2)); }},              \
           {"gaps", {{{1, 8, 9, 3}}}, [](const Tensors& t) { return op(t[0], 2, 2, square_window(3)); }},              \
           {"rectangular",                                                                                             \
            {{{1, 6, 7, 3}}},                                                                                          \
            [](const Tensors& t) {                                                                                     \
              return op(t[0], 3, 2, {2, 1, 1, 0, 1, 2});                                                               \
            }},                                                                                                        \
           {"whole", {{{2, 4, 4, 8}}}, [](const Tensors& t) { return op(t[0], 4, 4, {}); }},                           \
           {"outside", {{{1, 1, 8, 2}}}, [](const Tensors& t) { return clamp(op(t[0], 2, 2, kWide), -2, 2); }},        \
           {"no_channels", {{{2, 4, 4, 0}}}, [](const Tensors& t) { return op(t[0], 2, 2, square_window(2)); }},       \
           {"empty_vectors", {{{0, 4, 4, 8}}}, [](const Tensors& t) { return op(t[0], 3, 3, square_window(2, 1)); }},  \
           {"empty", {{{0, 4, 4, 3}}}, [](const Tensors& t) { return op(t[0], 2, 2, square_window(2)); }}},            \
      .workloads = {{"2x2_128x32x32x64",                                                                               \
                     {{{128, 32, 32, 64}}},                                                                            \
                     [](const Tensors& t) { return op(t[0], 2, 2, square_window(2)); }},                               \
                    {"3x3_s2_64x56x56x64",                                                                             \
                     {{{64, 56, 56, 64}}},                                                                             \
                     [](const Tensors& t) { return op(t[0], 3, 3, square_window(2, 1)); }}},                           \
      .invalid = {{"rank", {{{4, 4, 3}}}, [](const Tensors& t) { return op(t[0], 2, 2, square_window(2)); }},          \
                  {"window", {{{1, 2, 2, 3}}}, [](const Tensors& t) { return op(t[0], 3, 3, square_window(2)); }},     \
                  {"padding", {{{1, 4, 4, 3}}}, [](const Tensors& t) { return op(t[0], 2, 2, square_window(2, 2)); }}, \
                  {"stride", {{{1, 4, 4, 3}}}, [](const Tensors& t) { return op(t[0], 2, 2, square_window(0)); }}},    \
      .tolerance = 4,                                                                                                  \
    }                                                                                                                  \
  }
RT_POOL_RECORD(max_pool2d);
RT_POOL_RECORD(avg_pool2d);
#undef RT_POOL_RECORD

}  // namespace ringtape
