#include "kernels/conv2d.h"

#include "autograd/ops/common.h"
#include "autograd/partial_grad.h"
#include "kernels/reduce.h"

namespace ringtape {

static Tensor data_gradient(const Shape& shape, const Tensor& dy, const Tensor& w, const Window& window) {
  if (Tensor dx = partial_grad(0); dx.defined()) {
    conv2d_add_backward_data(dx, dy, w, window);
    return dx;
  }
  Tensor dx = empty_grad(0, shape, dy.dtype(), dy.device());
  conv2d_backward_data(dx, dy, w, window);
  return dx;
}

static Shape conv2d_output_shape(const Tensor& x, const Tensor& w, const Tensor& b, const Window& p) {
  check_float(x, "conv2d");
  check_same(x, w, "conv2d");
  if (b.defined()) check_same(x, b, "conv2d");
  RT_CHECK_AS(
      UsageError,
      p.stride_h >= 1 && p.stride_w >= 1 && p.dilation_h >= 1 && p.dilation_w >= 1 && p.pad_h >= 0 && p.pad_w >= 0,
      "conv2d: strides and dilations must be at least 1 and padding at least 0; got stride ", p.stride_h, "x",
      p.stride_w, ", dilation ", p.dilation_h, "x", p.dilation_w, ", padding ", p.pad_h, "x", p.pad_w);
  const Shape &a = x.shape(), &f = w.shape();
  const bool fits = a.rank() == 4 && f.rank() == 4 && f[1] > 0 && f[2] > 0 && f[3] > 0 && a[3] % f[3] == 0 &&
                    f[0] % (a[3] / f[3]) == 0 && (!b.defined() || b.shape() == Shape{f[0]});
  RT_CHECK_AS(ShapeError, fits, "conv2d: expected x (N, H, W, C), w (K, R, S, C / groups), b (K), got ", a, ", ", f,
              ", ", b.defined() ? b.shape().str() : "no b");
  const Shape y = {a[0], p.rows(a[1], f[1]), p.columns(a[2], f[2]), f[0]};
  RT_CHECK_AS(ShapeError, y[1] > 0 && y[2] > 0, "conv2d: a kernel of ", f[1], "x", f[2],
              " does not fit into images of ", a[1], "x", a[2], " with padding ", p.pad_h, "x", p.pad_w);
  return y;
}

// `wide`: w0 before it was converted. Its gradient has its dtype, and is rounded to that only.
static Tensor convolve(const Tensor& x0, const Tensor& w0, const Tensor& wide, const Tensor& b, const Window& window) {
  const Shape shape = conv2d_output_shape(x0, w0, b, window);
  const Tensor x = contiguous(x0), w = contiguous(w0), bias = b.defined() ? contiguous(b) : b;
  Tensor y(shape, x.dtype(), x.device());
  conv2d_forward(y, x, w, bias, window);
  describe([&] { return OpAttributes{attribute_of(window)}; });
  return record(
      "conv2d", {x, wide.dtype() == w.dtype() ? w : wide, bias}, y,
      [x = save(x), w = save(w), own = wide.dtype(), has_bias = b.defined(), window](const Tensor& dy0) -> Tensors {
        const Tensor dy = contiguous(dy0);
        Tensor dx, dw, db;
        if (needs_grad(0)) dx = data_gradient((*x).shape(), dy, *w, window);
        if (needs_grad(1)) {
          dw = empty_grad(1, (*w).shape(), own, dy.device());
          conv2d_backward_weights(dw, dy, *x, window);
        }
        if (has_bias && needs_grad(2)) {
          db = empty_grad(2, {dy.shape()[3]}, dy.dtype(), dy.device());
          sum_forward(db.window({1, 1, 1, db.size()}, {0, 0, 0, 1}), dy);
        }
        return {dx, dw, db};
      });
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b, const Window& window) {
  const CastTo to = autocast("conv2d", x, w, b);
  if (!to) return convolve(x, w, w, b, window);
  const Tensor cast_w = to(w);
  const bool direct = w.device().type == DeviceType::cpu;  // cuDNN writes what it reads
  return convolve(to(x), direct ? cast_w.detach() : cast_w, direct ? w : cast_w, to(b), window);
}

template <int64_t stride, int64_t pad, int64_t dilation = 1> static Tensor call_conv2d(const Tensors& t) {
  return conv2d(t[0], t[1], t.size() > 2 ? t[2] : Tensor{}, square_window(stride, pad, dilation));
}
static double conv2d_flops(const Tensors& t, const Tensor& y) {
  return 2.0 * double(y.size()) * double(t[1].size() / t[1].shape()[0]);
}
static const RegisterOp register_conv2d{{
    .name = "conv2d",
    .samples = {{"3x3", {{{2, 5, 6, 3}}, {{4, 3, 3, 3}}, {{4}}}, call_conv2d<1, 1>},
                {"1x1", {{{2, 4, 3, 5}}, {{3, 1, 1, 5}}}, call_conv2d<1, 0>},
                {"1x1_stride_2", {{{2, 5, 4, 3}}, {{4, 1, 1, 3}}}, call_conv2d<2, 0>},
                {"3x3_stride_2", {{{2, 6, 5, 3}}, {{4, 3, 3, 3}}}, call_conv2d<2, 1>},
                {"dilated", {{{1, 7, 6, 2}}, {{3, 3, 3, 2}}}, call_conv2d<1, 2, 2>},
                {"no_padding", {{{2, 5, 4, 3}}, {{2, 3, 2, 3}}, {{2}}}, call_conv2d<1, 0>},
                {"5x5_stride_3", {{{1, 8, 9, 2}}, {{3, 5, 5, 2}}}, call_conv2d<3, 2>},
                {"grouped", {{{2, 4, 5, 6}}, {{4, 3, 3, 3}}, {{4}}}, call_conv2d<1, 1>},
                {"depthwise", {{{2, 4, 5, 3}}, {{6, 3, 3, 1}}}, call_conv2d<1, 1>},
                {"rectangular",
                 {{{1, 5, 7, 2}}, {{3, 3, 2, 2}}},
                 [](const Tensors& t) {
                   return conv2d(t[0], t[1], {}, {2, 1, 0, 1, 1, 3});
                 }},
                {"tiles", {{{2, 9, 7, 16}}, {{17, 3, 3, 16}}, {{17}}}, call_conv2d<1, 1>},
                {"depthwise_vectors", {{{2, 4, 5, 19}}, {{19, 3, 3, 1}}, {{19}}}, call_conv2d<1, 1>},
                {"large_padding", {{{1, 2, 2, 2}}, {{2, 3, 3, 2}}}, call_conv2d<1, 3>},
                {"empty", {{{0, 5, 6, 3}}, {{4, 3, 3, 3}}, {{4}}}, call_conv2d<1, 1>},
                {"empty_1x1", {{{0, 4, 3, 5}}, {{3, 1, 1, 5}}}, call_conv2d<1, 0>},
                {"empty_3x3_stride_2", {{{0, 6, 5, 16}}, {{17, 3, 3, 16}}}, call_conv2d<2, 1>},
                {"empty_grouped", {{{0, 4, 5, 6}}, {{4, 3, 3, 3}}, {{4}}}, call_conv2d<1, 1>},
                {"empty_depthwise", {{{0, 4, 5, 19}}, {{19, 3, 3, 1}}, {{19}}}, call_conv2d<1, 1>},
                {"empty_tiles", {{{0, 9, 7, 16}}, {{17, 3, 3, 16}}, {{17}}}, call_conv2d<1, 1>}},
    .workloads = {{"stem_128x32x32x3_64", {{{128, 32, 32, 3}}, {{64, 3, 3, 3}}}, call_conv2d<1, 1>},
                  {"128x32x32x64_64", {{{128, 32, 32, 64}}, {{64, 3, 3, 64}}}, call_conv2d<1, 1>},
                  {"128x32x32x64_128_s2", {{{128, 32, 32, 64}}, {{128, 3, 3, 64}}}, call_conv2d<2, 1>},
                  {"128x32x32x64_128_1x1_s2", {{{128, 32, 32, 64}}, {{128, 1, 1, 64}}}, call_conv2d<2, 0>},
                  {"128x16x16x128_128", {{{128, 16, 16, 128}}, {{128, 3, 3, 128}}}, call_conv2d<1, 1>},
                  {"128x16x16x128_256_s2", {{{128, 16, 16, 128}}, {{256, 3, 3, 128}}}, call_conv2d<2, 1>},
                  {"128x8x8x256_256", {{{128, 8, 8, 256}}, {{256, 3, 3, 256}}}, call_conv2d<1, 1>},
                  {"128x8x8x256_512_s2", {{{128, 8, 8, 256}}, {{512, 3, 3, 256}}}, call_conv2d<2, 1>},
                  {"128x4x4x512_512", {{{128, 4, 4, 512}}, {{512, 3, 3, 512}}}, call_conv2d<1, 1>}},
    .invalid = {{"channels", {{{2, 5, 6, 3}}, {{4, 3, 3, 2}}}, call_conv2d<1, 1>},
                {"rank", {{{5, 6, 3}}, {{4, 3, 3, 3}}}, call_conv2d<1, 1>},
                {"bias", {{{2, 5, 6, 3}}, {{4, 3, 3, 3}}, {{3}}}, call_conv2d<1, 1>},
                {"kernel", {{{2, 2, 2, 3}}, {{4, 3, 3, 3}}}, call_conv2d<1, 0>},
                {"stride", {{{2, 5, 6, 3}}, {{4, 3, 3, 3}}}, call_conv2d<0, 1>}},
    .flops = conv2d_flops,
    .tolerance = 64,  // Winograd's transforms
}};

}  // namespace ringtape
