#include "kernels/conv2d_prepared.h"

#include <algorithm>
#include <limits>

#include "kernels/binary.h"
#include "kernels/clamp.h"
#include "kernels/copy.h"

namespace ringtape {
namespace {

Shape output_of(const Shape& image, const Shape& w, const Window& p) {
  return {p.rows(image[0], w[1]), p.columns(image[1], w[2]), w[0]};
}

Tensor converted(View from, DType dtype) {
  Tensor to(from.shape(), dtype, from.device);
  copy(to, from);
  return to;
}

// Whole vectors of every instruction set.
Tensor padded(View b, int64_t k) {
  constexpr int64_t block = 64;
  const Tensor to = zeros({(k + block - 1) / block * block});
  if (b.data) std::copy_n(b.as<float>(), k, to.data<float>());
  return to;
}

void check_operand(const View& v, const char* name, const Shape& each, int64_t n, const PreparedConv& conv) {
  RT_CHECK_AS(DTypeError, v.dtype == conv.dtype, "conv2d_prepared: ", name, " is ", v.dtype,
              "; expected the dtype that it was prepared for, ", conv.dtype);
  RT_CHECK_AS(ShapeError,
              v.rank == 4 && v.dims[0] == n && v.dims[1] == each[0] && v.dims[2] == each[1] && v.dims[3] == each[2] &&
                  v.contiguous(),
              "conv2d_prepared: ", name, " is ", v.shape(), "; expected ", n, " contiguous images of ", each);
}

void run_plain(View y, View x, const PreparedConv& conv, View residual, bool relu) {
  Tensor added;  // the residual, before y is written
  if (residual.data == y.data && y.data) copy(added = Tensor(y.shape(), y.dtype, y.device), residual), residual = added;
  conv2d_forward(y, x, conv.w, conv.b.defined() ? View(conv.b) : View{}, conv.window);
  if (residual.data) add_forward(y, y, residual);
  if (relu) clamp_forward(y, y, 0, std::numeric_limits<double>::infinity());
}

}  // namespace

PreparedConv prepare_conv2d(View w, View b, Window window, const Shape& image, DType dtype) {
  RT_CHECK_AS(DTypeError, w.dtype == DType::f32 && (!b.data || b.dtype == DType::f32),
              "prepare_conv2d: weights and bias are ", w.dtype, " and ", b.dtype, "; expected f32");
  RT_CHECK_AS(DTypeError, dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16,
              "prepare_conv2d: images of ", dtype, "; expected f32, bf16 or f16");
  const Shape f = w.shape();
  RT_CHECK_AS(ShapeError,
              f.rank() == 4 && image.rank() == 3 && w.contiguous() && f.size() > 0 && image[2] % f[3] == 0 &&
                  f[0] % (image[2] / f[3]) == 0 && (!b.data || (b.rank == 1 && b.dims[0] == f[0] && b.contiguous())),
              "prepare_conv2d: expected contiguous w (K, R, S, C / groups), b (K) and an image (H, W, C), got ", f,
              ", ", b.shape(), " and ", image);
  PreparedConv conv{.dtype = dtype,
                    .image = image,
                    .weights = f,
                    .output = output_of(image, f, window),
                    .window = window,
                    .algorithm = ConvAlgorithm::plain,
                    .isa = cpu_isa(),
                    .unit = bf16_choice(),
                    .w = {},
                    .b = {}};
  pack_conv2d(w, &conv);
  if (conv.algorithm != ConvAlgorithm::plain) conv.b = padded(b, f[0]);
  else if (conv.w = converted(w, dtype); b.data) conv.b = converted(b, dtype);
  return conv;
}

void conv2d_prepared(View y, View x, const PreparedConv& conv, View residual, bool relu) {
  const int64_t n = x.rank ? x.dims[0] : 0;
  const Bf16Choice unit = bf16_choice();
  check_operand(x, "x", conv.image, n, conv);
  check_operand(y, "y", conv.output, n, conv);
  if (residual.data) check_operand(residual, "the residual", conv.output, n, conv);
  RT_CHECK_AS(DeviceError, conv.isa == cpu_isa() && conv.unit.unit == unit.unit && conv.unit.emulated == unit.emulated,
              "conv2d_prepared: prepared for ", conv.isa, " with ", conv.unit.unit,
              "; prepare it again for the instruction set in use, ", cpu_isa(), " with ", unit.unit);
  if (conv.algorithm != ConvAlgorithm::plain) return run_prepared_conv2d(y, x, conv, residual, relu);
  run_plain(y, x, conv, residual, relu);
}

}  // namespace ringtape
