#include "autograd/ops/common.h"
#include "kernels/copy.h"
#include "kernels/fill.h"

namespace ringtape {

// A view of rows [h, h + rows) and columns [w, w + columns) of images.
static Tensor spatial_window(const Tensor& x, int64_t h, int64_t rows, int64_t w, int64_t columns) {
  return x.window({x.shape()[0], rows, columns, x.shape()[3]}, x.strides(), h * x.strides()[1] + w * x.strides()[2]);
}

Tensor pad2d(const Tensor& x, int64_t top, int64_t bottom, int64_t left, int64_t right, double value) {
  RT_CHECK_AS(ShapeError, x.rank() == 4, "pad2d: expected images (N, H, W, C), got ", x.shape());
  RT_CHECK_AS(UsageError, top >= 0 && bottom >= 0 && left >= 0 && right >= 0, "pad2d: padding must be at least 0, got ",
              top, ", ", bottom, ", ", left, ", ", right, "; slice takes parts away");
  const int64_t h = x.shape()[1], w = x.shape()[2];
  const Tensor y({x.shape()[0], top + h + bottom, left + w + right, x.shape()[3]}, x.dtype(), x.device());
  if (top > 0) fill(spatial_window(y, 0, top, 0, left + w + right), value);
  if (bottom > 0) fill(spatial_window(y, top + h, bottom, 0, left + w + right), value);
  if (left > 0) fill(spatial_window(y, top, h, 0, left), value);
  if (right > 0) fill(spatial_window(y, top, h, left + w, right), value);
  copy(spatial_window(y, top, h, left, w), x);
  describe([&] { return OpAttributes{{"pads", std::vector<int64_t>{top, left, bottom, right}}, {"value", value}}; });
  return record("pad2d", {x}, y, [=](const Tensor& dy) -> Tensors { return {spatial_window(dy, top, h, left, w)}; });
}

static const RegisterOp register_pad2d{{
    .name = "pad2d",
    .samples = {{"zeros", {{{2, 3, 4, 3}}}, [](const Tensors& t) { return pad2d(t[0], 1, 2, 3, 0); }},
                {"value", {{{1, 2, 2, 5}}}, [](const Tensors& t) { return pad2d(t[0], 1, 1, 1, 1, -0.5); }},
                {"none", {{{1, 2, 3, 4}}}, [](const Tensors& t) { return pad2d(t[0], 0, 0, 0, 0); }},
                {"no_rows", {{{2, 0, 2, 3}}}, [](const Tensors& t) { return pad2d(t[0], 1, 1, 0, 1); }},
                {"empty", {{{0, 2, 2, 3}}}, [](const Tensors& t) { return pad2d(t[0], 1, 1, 1, 1); }}},
    .workloads = {{"4_128x32x32x3", {{{128, 32, 32, 3}}}, [](const Tensors& t) { return pad2d(t[0], 4, 4, 4, 4); }},
                  {"1_128x32x32x64", {{{128, 32, 32, 64}}}, [](const Tensors& t) { return pad2d(t[0], 1, 1, 1, 1); }}},
    .invalid = {{"rank", {{{2, 3, 4}}}, [](const Tensors& t) { return pad2d(t[0], 1, 1, 1, 1); }},
                {"negative", {{{1, 2, 2, 5}}}, [](const Tensors& t) { return pad2d(t[0], -1, 0, 0, 0); }}},
}};

}  // namespace ringtape
