#include "autograd/ops/common.h"
#include "kernels/group_norm.h"
#include "kernels/layer_norm.h"

namespace ringtape {
namespace {

// Checks w or b, if it is there.
void check_norm_parameter(const char* op, const Tensor& x, const Tensor& t, const char* what, const Shape& wanted) {
  if (!t.defined()) return;
  RT_CHECK_AS(ShapeError, t.shape() == wanted, op, ": expected ", what, " of shape ", wanted, " for x ", x.shape(),
              ", got ", t.shape());
  RT_CHECK_AS(DTypeError, t.dtype() == wide_dtype(x), op, ": x and ", what, " of ", x.dtype(), " and ", t.dtype(), "; ",
              what, " must be ", wide_dtype(x), ": convert it with cast(x, dtype)");
  RT_CHECK_AS(DeviceError, t.device() == x.device(), op, ": x and ", what, " on ", x.device(), " and ", t.device(),
              "; move one with to(x, device)");
}

void check_eps(const char* op, double eps) { RT_CHECK_AS(UsageError, eps >= 0, op, ": eps ", eps, " is below 0"); }

Tensor contiguous_if_there(const Tensor& x) { return x.defined() ? contiguous(x) : x; }

// dw or db; undefined if it is not needed.
Tensor norm_parameter_grad(size_t input, const Tensor& parameter) {
  return needs_grad(input) ? empty_grad(input, parameter.shape(), parameter.dtype(), parameter.device()) : Tensor{};
}

// The trailing axes that w or b has, or the last one.
Shape normalized_axes(const char* op, const Tensor& x, const Tensor& w, const Tensor& b) {
  const Tensor& given = w.defined() ? w : b;
  const int rank = given.defined() ? given.rank() : 1;
  RT_CHECK_AS(ShapeError, rank >= 1 && rank <= x.rank(), op, ": expected w of 1 to ", x.rank(), " trailing axes of x ",
              x.shape(), ", got ", given.defined() ? given.shape().str() : "none");
  Shape out;
  for (int i = x.rank() - rank; i < x.rank(); ++i) out.append(x.shape()[i]);
  return out;
}

Tensor normalize_rows(const char* op, const Tensor& x0, const Tensor& w0, const Tensor& b0, double eps, bool centred) {
  check_float(x0, op);
  const Shape axes = normalized_axes(op, x0, w0, b0);
  check_norm_parameter(op, x0, w0, "w", axes);
  check_norm_parameter(op, x0, b0, "b", axes);
  check_eps(op, eps);
  const Tensor x = contiguous(x0), w = contiguous_if_there(w0), b = contiguous_if_there(b0);
  int64_t rows = 1;
  for (int i = 0; i < x.rank() - axes.rank(); ++i) rows *= x.shape()[i];
  const auto as_rows = [rows, n = axes.size()](const Tensor& t) { return t.window({rows, n}, {n, 1}); };
  const Tensor statistics({rows, 3}, wide_dtype(x), x.device());
  const auto forward = [=](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& statistics) {
    const Tensor y = empty_like(x);
    layer_norm_forward(as_rows(y), statistics, as_rows(x), w, b, eps, centred);
    return y;
  };
  const Tensor y = forward(x, w, b, statistics);
  describe([&] { return OpAttributes{{"eps", eps}}; });
  const SavedTensor kept = save_value(x), scale = save(w), shift = save(b);
  const auto backward = [=, statistics = save(statistics)](const Tensor& dy) -> Tensors {
    const Tensor dx = empty_like(*kept), dw = norm_parameter_grad(1, *scale), db = norm_parameter_grad(2, *shift);
    layer_norm_backward(as_rows(dx), dw, db, as_rows(contiguous(dy)), as_rows(*kept), *statistics, *scale, centred);
    return {dx, dw, db};
  };
  return recomputed(record(op, {x, w, b}, y, backward), [=] {
    return forward(*kept, *scale, *shift, Tensor({rows, 3}, wide_dtype(*kept), (*kept).device()));
  });
}

Tensor normalize_groups(const char* op, const Tensor& x0, int64_t groups, const Tensor& w0, const Tensor& b0,
                        double eps) {
  check_float(x0, op);
  RT_CHECK_AS(ShapeError, x0.rank() >= 2, op, ": expected x (N, ..., C) with at least 2 axes, got ", x0.shape());
  const int64_t channels = x0.dim(-1), samples = x0.dim(0);
  if (groups == 0 && channels == 0) groups = 1;
  RT_CHECK_AS(ShapeError, groups >= 1 && channels % groups == 0, op, ": ", channels, " channels of x ", x0.shape(),
              " cannot be divided into ", groups, " groups");
  check_norm_parameter(op, x0, w0, "w", {channels});
  check_norm_parameter(op, x0, b0, "b", {channels});
  check_eps(op, eps);
  const Tensor x = contiguous(x0), w = contiguous_if_there(w0), b = contiguous_if_there(b0);
  int64_t rows = 1;
  for (int i = 1; i < x.rank() - 1; ++i) rows *= x.shape()[i];
  const auto as_samples = [=](const Tensor& t) {
    return t.window({samples, rows, channels}, {rows * channels, channels, 1});
  };
  const Tensor y = empty_like(x), statistics({samples, groups, 2}, wide_dtype(x), x.device());
  group_norm_forward(as_samples(y), statistics, as_samples(x), w, b, eps);
  return record(
      op, {x, w, b}, y,
      [x = save(x), w = save(w), b = save(b), statistics = save(statistics), as_samples](const Tensor& dy) -> Tensors {
        const Tensor dx = empty_like(*x), dw = norm_parameter_grad(1, *w), db = norm_parameter_grad(2, *b);
        group_norm_backward(as_samples(dx), dw, db, as_samples(contiguous(dy)), as_samples(*x), *statistics, *w);
        return {dx, dw, db};
      });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  return normalize_rows("layer_norm", x, w, b, eps, true);
}
Tensor rms_norm(const Tensor& x, const Tensor& w, double eps) {
  return normalize_rows("rms_norm", x, w, {}, eps, false);
}
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& w, const Tensor& b, double eps) {
  return normalize_groups("group_norm", x, groups, w, b, eps);
}
Tensor instance_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps) {
  check_float(x, "instance_norm");
  return normalize_groups("instance_norm", x, x.rank() > 0 ? x.dim(-1) : 1, w, b, eps);
}

// Input i in the dtype that matches x's; as it is if a test gives it another one.
static Tensor parameter(const Tensors& t, size_t i) {
  if (i >= t.size()) return {};
  return t[i].dtype() != t[0].dtype() ? t[i] : cast(t[i], wide_dtype(t[0]));
}

static Tensor call_layer_norm(const Tensors& t) { return layer_norm(t[0], parameter(t, 1), parameter(t, 2)); }
static const RegisterOp register_layer_norm{{
    .name = "layer_norm",
    .samples = {{"rows", {{{6, 5}}, {{5}}, {{5}}}, call_layer_norm},
                {"odd", {{{3, 7, 37}}, {{37}}, {{37}}}, call_layer_norm},
                {"two_axes", {{{4, 3, 5}}, {{3, 5}}, {{3, 5}}}, call_layer_norm},
                {"one_row", {{{19}}, {{19}}, {{19}}}, call_layer_norm},
                {"one_column", {{{4, 1}}, {{1}}, {{1}}}, call_layer_norm},
                {"long", {{{2, 1101}}, {{1101}}, {{1101}}}, call_layer_norm},
                {"many_rows", {{{301, 3}}, {{3}}, {{3}}}, call_layer_norm},
                {"plain", {{{5, 8}}}, call_layer_norm},
                {"weight", {{{5, 8}}, {{8}}}, call_layer_norm},
                {"bias", {{{5, 8}}, {{8}}}, [](const Tensors& t) { return layer_norm(t[0], {}, parameter(t, 1)); }},
                {"empty", {{{0, 4}}, {{4}}, {{4}}}, call_layer_norm},
                {"no_columns", {{{3, 0}}, {{0}}, {{0}}}, call_layer_norm}},
    .workloads = {{"8192x768", {{{8192, 768}}, {{768}}, {{768}}}, call_layer_norm}},
    .invalid = {{"width", {{{3, 5}}, {{4}}, {{4}}}, call_layer_norm},
                {"bias_width", {{{3, 5}}, {{5}}, {{4}}}, call_layer_norm},
                {"rank", {{{5}}, {{3, 5}}}, call_layer_norm},
                {"scalar", {{{}}}, call_layer_norm},
                {"eps", {{{3, 5}}}, [](const Tensors& t) { return layer_norm(t[0], {}, {}, -1); }}},
    .tolerance = 16,
}};

static Tensor call_rms_norm(const Tensors& t) { return rms_norm(t[0], parameter(t, 1)); }
static const RegisterOp register_rms_norm{{
    .name = "rms_norm",
    .samples = {{"rows", {{{6, 5}}, {{5}}}, call_rms_norm},
                {"odd", {{{3, 7, 37}}, {{37}}}, call_rms_norm},
                {"two_axes", {{{4, 3, 5}}, {{3, 5}}}, call_rms_norm},
                {"plain", {{{5, 8}}}, call_rms_norm},
                {"many_rows", {{{301, 3}}, {{3}}}, call_rms_norm},
                {"empty", {{{0, 4}}, {{4}}}, call_rms_norm}},
    .workloads = {{"8192x768", {{{8192, 768}}, {{768}}}, call_rms_norm}},
    .invalid = {{"width", {{{3, 5}}, {{4}}}, call_rms_norm}},
    .tolerance = 16,
}};

template <int64_t groups> static Tensor call_group_norm(const Tensors& t) {
  return group_norm(t[0], groups, parameter(t, 1), parameter(t, 2));
}
static const RegisterOp register_group_norm{{
    .name = "group_norm",
    .samples = {{"images", {{{2, 3, 3, 6}}, {{6}}, {{6}}}, call_group_norm<2>},
                {"rows", {{{5, 8}}, {{8}}, {{8}}}, call_group_norm<2>},
                {"one_group", {{{3, 5, 4}}, {{4}}, {{4}}}, call_group_norm<1>},
                {"odd", {{{3, 5, 7, 15}}, {{15}}, {{15}}}, call_group_norm<3>},
                {"vectors", {{{3, 33, 32}}, {{32}}, {{32}}}, call_group_norm<4>},
                {"plain", {{{2, 5, 6}}}, call_group_norm<3>},
                {"weight", {{{2, 5, 6}}, {{6}}}, call_group_norm<3>},
                {"empty", {{{0, 3, 4}}, {{4}}, {{4}}}, call_group_norm<2>},
                {"no_pixels", {{{2, 0, 4}}, {{4}}, {{4}}}, call_group_norm<2>}},
    .workloads = {{"32x32x32x128", {{{32, 32, 32, 128}}, {{128}}, {{128}}}, call_group_norm<32>}},
    .invalid = {{"groups", {{{2, 3, 6}}, {{6}}, {{6}}}, call_group_norm<4>},
                {"no_groups", {{{2, 3, 6}}, {{6}}, {{6}}}, call_group_norm<0>},
                {"channels", {{{2, 3, 6}}, {{5}}, {{5}}}, call_group_norm<2>},
                {"rank", {{{6}}, {{6}}, {{6}}}, call_group_norm<2>}},
    .tolerance = 16,
}};

static Tensor call_instance_norm(const Tensors& t) { return instance_norm(t[0], parameter(t, 1), parameter(t, 2)); }
static const RegisterOp register_instance_norm{{
    .name = "instance_norm",
    .samples = {{"images", {{{2, 3, 3, 4}}, {{4}}, {{4}}}, call_instance_norm},
                {"one_channel", {{{3, 7, 1}}, {{1}}, {{1}}}, call_instance_norm},
                {"odd", {{{3, 5, 7, 17}}, {{17}}, {{17}}}, call_instance_norm},
                {"plain", {{{2, 5, 32}}}, call_instance_norm},
                {"empty", {{{0, 3, 4}}, {{4}}, {{4}}}, call_instance_norm},
                {"no_channels", {{{2, 3, 0}}, {{0}}, {{0}}}, call_instance_norm}},
    .workloads = {{"32x64x64x64", {{{32, 64, 64, 64}}, {{64}}, {{64}}}, call_instance_norm}},
    .invalid = {{"channels", {{{2, 3, 6}}, {{5}}, {{5}}}, call_instance_norm}, {"rank", {{{}}}, call_instance_norm}},
    .tolerance = 16,
}};

}  // namespace ringtape
