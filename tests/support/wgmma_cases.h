#pragma once
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/runtime.h"
#include "kernels/arithmetic.h"
#include "kernels/conv_norm.h"
#include "tests/support/cuda_support.h"
#include "tests/support/noise.h"

// Convolutions of as many channels as before, 3x3 with padding 1, fused with BatchNorm: by wgmma or not.
namespace ringtape::test::wgmma {

constexpr double kEps = 1e-5;
inline const Window kWindow = square_window(1, 1);

struct Layer {
  int64_t n, width, channels;
  Shape image() const { return {n, width, width, channels}; }
  Shape weights() const { return {channels, 3, 3, channels}; }
};

struct Operands {
  Tensor x, dy, w, mean, var, scale, shift;
  NormOperand normalized() const { return {x, mean, var, scale, shift, kEps}; }
};

// Whole: numbers whose sums are exact in f32, and in 16 bits are not.
inline Operands operands(const Layer& c, DType dtype, DType wide, Device device, bool whole = false) {
  const double spread = 1 / std::sqrt(9.0 * double(c.channels));
  const auto drawn = [&](const Shape& s, uint64_t seed, double mean, double deviation) {
    const Tensor x = noise(s, seed, mean, deviation);
    return to(cast(cast(whole ? round(x) : x, DType::bf16), dtype), device);
  };
  const auto channel = [&](uint64_t seed, double mean, double deviation) {
    const Tensor x = noise({c.channels}, seed, mean, deviation);
    return to(cast(cast(x, DType::f32), wide), device);
  };
  return {drawn(c.image(), 1, 0.5, 2),
          drawn(c.image(), 7, 0, whole ? 100 : 1),
          drawn(c.weights(), 2, 0, whole ? 1 : spread),
          channel(3, 0.5, 0.1),
          channel(4, 4, 0.1),
          channel(5, 1, 0.2),
          channel(6, 0, 0.2)};
}

struct Results {
  Tensor y, mean, var;
};
inline Results forward(const NormOperand& x, const Tensor& w, const Window& window, bool wgmma) {
  const Shape& s = x.raw.shape();
  const DType wide = x.raw.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor y({s[0], window.rows(s[1], 3), window.columns(s[2], 3), w.dim(0)}, x.raw.dtype(), x.raw.device());
  Results out{y, full({w.dim(0)}, 7, wide, y.device()), full({w.dim(0)}, 7, wide, y.device())};
  const ArithmeticScope fused(&Arithmetic::fusing, Fusing::always);
  conv_norm_forward(out.y, out.mean, out.var, x, w, window, {}, wgmma);
  synchronize(y.device());
  return out;
}

inline Tensor weights(const NormOperand& x, const Tensor& dy, const Shape& shape, bool wgmma) {
  const Tensor dw(shape, dy.dtype() == DType::f64 ? DType::f64 : DType::f32, dy.device());
  const ArithmeticScope fused(&Arithmetic::fusing, Fusing::always);
  conv_norm_backward_weights(dw, dy, x, kWindow, wgmma);
  synchronize(dy.device());
  return dw;
}

// Of a plain image its gradient + skip, of a normalised one those of the normalisation, too.
struct Gradients {
  Tensor dx, db, dw;
};
inline Gradients data(const NormOperand& x, const Tensor& dy, const Tensor& w, const Tensor& skip, bool wgmma) {
  Gradients out{empty_like(x.raw), {}, {}};
  if (x.mean.defined()) out.db = empty_like(x.mean), out.dw = empty_like(x.mean);
  const ArithmeticScope fused(&Arithmetic::fusing, Fusing::always);
  conv_norm_backward_data(out.dx, out.db, out.dw, dy, w, x, skip, kWindow, wgmma);
  synchronize(dy.device());
  return out;
}

}  // namespace ringtape::test::wgmma
