#include <array>

#include "autograd/checkpoint.h"
#include "autograd/ops/common.h"
#include "kernels/conv_norm.h"

namespace ringtape {
namespace {

constexpr int kShortcut = 2;  // of the three convolutions; it may be missing

struct Layer {  // what one of them takes and leaves
  Tensor w, scale, shift, raw, mean, var;
  Window window;
  double eps;

  NormOperand normalized() const { return {raw, mean, var, scale, shift, eps}; }
};

Window window_of(const Tensor& w, int64_t stride) { return square_window(stride, w.dim(1) / 2); }

// The result of a layer for images like x, of another shape; throws for operands that do not fit.
Shape result_of(const Shape& image, const Tensor& x, const ConvNorm& c, int64_t stride, const char* which) {
  check_same(x, c.w, "residual_block");
  const Shape& w = c.w.shape();
  RT_CHECK_AS(ShapeError,
              image.rank() == 4 && w.rank() == 4 && w[1] == w[2] && w[1] % 2 == 1 && w[3] == image[3] && w[0] > 0 &&
                  image[1] > 0 && image[2] > 0,
              "residual_block: expected images (N, H, W, C) and ", which, " (K, R, R, C) with an odd R, got ", image,
              " and ", w);
  RT_CHECK_AS(UsageError, stride >= 1, "residual_block: expected a stride of at least 1, got ", stride);
  const RunningStatistics& running = c.running;
  const bool keeps = running.mean.defined();
  RT_CHECK_AS(ShapeError, running.var.defined() == keeps && running.batches.defined() == keeps,
              "residual_block: expected a running mean, variance and number of batches for ", which, ", or none");
  for (const Tensor* t : {&c.scale, &c.shift, &running.mean, &running.var}) {
    if (!keeps && t != &c.scale && t != &c.shift) continue;
    check_same_device(x, *t, "residual_block");
    RT_CHECK_AS(ShapeError, t->shape() == Shape{w[0]}, "residual_block: expected values of ", w[0], " channels for ",
                which, ", got ", t->shape());
    RT_CHECK_AS(DTypeError, t->dtype() == wide_dtype(x), "residual_block: x and normalisation of ", x.dtype(), " and ",
                t->dtype(), "; the latter must be ", wide_dtype(x), ": convert it with cast(x, dtype)");
  }
  const Window window = window_of(c.w, stride);
  const Shape result = {image[0], window.rows(image[1], w[1]), window.columns(image[2], w[1]), w[0]};
  RT_CHECK_AS(ShapeError, result.size() / w[0] > 1,
              "residual_block: expected more than 1 value per channel when training, got images ", image);
  return result;
}

// The convolution of x, and the statistics of its result.
Layer run(const NormOperand& x, const ConvNorm& c, int64_t stride, const Shape& shape, const BatchNormOptions& options,
          bool wgmma) {
  const Window window = window_of(c.w, stride);
  const Tensor raw(shape, x.raw.dtype(), x.raw.device()), mean({shape[3]}, wide_dtype(x.raw), x.raw.device());
  const Layer out{contiguous(c.w), contiguous(c.scale), contiguous(c.shift), raw, mean, empty_like(mean),
                  window,          options.eps};
  const int64_t count = raw.size() / shape[3];
  RunningUpdate update{.momentum = options.momentum, .correction = double(count) / double(count - 1)};
  if (c.running.mean.defined() && !recomputing())
    update.mean = c.running.mean, update.var = c.running.var, update.batches = c.running.batches;
  conv_norm_forward(out.raw, out.mean, out.var, x, out.w, window, update, wgmma);
  if (update.mean.data)
    for (const Tensor& t : {c.running.mean, c.running.var, c.running.batches})
      t.storage()->written_by("residual_block");
  return out;
}

struct SavedLayer {
  SavedTensor w, scale, shift, raw, mean, var;
  Window window;
  double eps;
  DType own;  // of the weights before they were converted

  SavedLayer(const Layer& l, DType dtype)
      : w(l.w), scale(l.scale), shift(l.shift), raw(l.raw), mean(l.mean), var(l.var), window(l.window), eps(l.eps),
        own(dtype) {}
  Layer get() const { return {*w, *scale, *shift, *raw, *mean, *var, window, eps}; }
};

// Those of one layer's inputs.
struct Gradients {
  Tensor w, scale, shift;
};

// Of layer number i, whose inputs of the node are 1 + 3 i to 3 + 3 i.
Gradients gradients(const Layer& l, size_t i, DType own) {
  const auto place = [&](size_t input, const Tensor& like, DType dtype) {
    return needs_grad(input) ? empty_grad(input, like.shape(), dtype, like.device())
                             : Tensor(like.shape(), dtype, like.device());
  };
  return {needs_grad(1 + 3 * i) ? place(1 + 3 * i, l.w, own) : Tensor(), place(2 + 3 * i, l.scale, l.scale.dtype()),
          place(3 + 3 * i, l.shift, l.shift.dtype())};
}

}  // namespace

bool fuses_residual_block(const Tensor& x, const Tensor& w, int64_t stride) {
  const DType dtype = autocast("residual_block", x, w) ? autocast_dtype() : x.dtype();
  if (x.device().type == DeviceType::cpu) return true;
  return block_kernels({x.device(), dtype, x.shape(), w.shape(), stride}) != BlockKernels::one_by_one;
}

Tensor residual_block(const Tensor& x0, const ConvNorm& first0, const ConvNorm& second0, const ConvNorm& shortcut0,
                      int64_t stride, const BatchNormOptions& options) {
  const bool projects = shortcut0.w.defined();
  const CastTo to = autocast("residual_block", x0, first0.w, second0.w, shortcut0.w);
  std::array<ConvNorm, 3> by = {first0, second0, shortcut0};
  std::array<DType, 3> own{};
  Tensors inputs = {contiguous(to ? to(x0) : x0)};
  for (size_t i = 0; i < (projects ? 3 : 2); ++i) {
    ConvNorm& c = by[i];
    check_defined(c.w, "residual_block");
    own[i] = c.w.dtype();
    inputs.insert(inputs.end(), {c.w, c.scale, c.shift});
    if (to) c.w = to(c.w).detach();
  }
  const Tensor& x = inputs[0];
  check_float(x, "residual_block");
  const Shape inside = result_of(x.shape(), x, by[0], stride, "the first w"),
              shape = result_of(inside, x, by[1], 1, "the second w"),
              of_shortcut = projects ? result_of(x.shape(), x, by[kShortcut], stride, "the shortcut's w") : x.shape();
  RT_CHECK_AS(ShapeError, of_shortcut == shape, "residual_block: a shortcut of shape ", of_shortcut, " for results of ",
              shape);
  const bool wgmma = block_kernels({x.device(), x.dtype(), x.shape(), by[0].w.shape(), stride}) == BlockKernels::wgmma;
  const Layer first = run({x}, by[0], stride, inside, options, wgmma);
  Layer shortcut;  // before the second, as one by one: ranks that share weights use them in one order
  Tensor added = x;
  if (projects) {
    shortcut = run({x}, by[kShortcut], stride, shape, options, wgmma);
    added = empty_like(shortcut.raw);
    batch_norm_forward(added, {}, shortcut.raw, {}, shortcut.mean, shortcut.var, shortcut.scale, shortcut.shift,
                       options.eps, Activation::none);
  }
  const Layer second = run(first.normalized(), by[1], 1, shape, options, wgmma);
  const Tensor y = empty_like(second.raw),
               mask = grad_enabled() ? Tensor({batch_norm_mask_bytes(y.size())}, DType::u8, y.device()) : Tensor();
  batch_norm_forward(y, mask, second.raw, added, second.mean, second.var, second.scale, second.shift, options.eps,
                     Activation::relu);
  std::vector<SavedLayer> layers = {{first, own[0]}, {second, own[1]}};
  if (projects) layers.emplace_back(shortcut, own[kShortcut]);
  return record(
      "residual_block", inputs, y,
      [x = save(x), mask = save(mask), layers = std::move(layers), wgmma](const Tensor& dy0) -> Tensors {
        const Tensor dy = contiguous(dy0), dz = empty_like(dy);
        Tensors out(1);
        const auto add = [&out](const Gradients& g) { out.insert(out.end(), {g.w, g.scale, g.shift}); };
        // That of a layer's convolution, by `of_y` where the mask says; `masked` is that.
        const auto through_norm = [](const Layer& l, const Gradients& g, const Tensor& of_y, View mask, View masked) {
          const Tensor dx = empty_like(of_y);
          batch_norm_backward_sums(g.shift, g.scale, of_y, mask, l.raw, l.mean, l.var, l.eps);
          batch_norm_backward(dx, masked, of_y, mask, l.raw, l.mean, l.var, l.scale, g.shift, g.scale,
                              l.raw.size() / l.raw.dim(-1), l.eps);
          return dx;
        };
        const NormOperand plain{*x};

        const Layer second = layers[1].get(), first = layers[0].get();
        const Gradients of_second = gradients(second, 1, layers[1].own), of_first = gradients(first, 0, layers[0].own);
        const Tensor dfirst = empty_like(first.raw);
        {
          const Tensor dsecond = through_norm(second, of_second, dy, *mask, dz);
          conv_norm_backward_data(dfirst, of_first.shift, of_first.scale, dsecond, second.w, first.normalized(), {},
                                  second.window, wgmma);
          if (needs_grad(4)) conv_norm_backward_weights(of_second.w, dsecond, first.normalized(), second.window, wgmma);
        }
        add(of_first), add(of_second);

        Tensor skip = dz;
        if (layers.size() > kShortcut) {
          const Layer shortcut = layers[kShortcut].get();
          const Gradients g = gradients(shortcut, kShortcut, layers[kShortcut].own);
          const Tensor d = through_norm(shortcut, g, dz, {}, {});
          if (needs_grad(0)) {
            skip = empty_like(*x);
            conv_norm_backward_data(skip, {}, {}, d, shortcut.w, plain, {}, shortcut.window);
          }
          if (needs_grad(7)) conv_norm_backward_weights(g.w, d, plain, shortcut.window);
          add(g);
        }
        if (needs_grad(0)) {
          out[0] = empty_like(*x);
          conv_norm_backward_data(out[0], {}, {}, dfirst, first.w, plain, skip, first.window, wgmma);
        }
        if (needs_grad(1)) conv_norm_backward_weights(of_first.w, dfirst, plain, first.window, wgmma);
        return out;
      });
}

// (x, w, w', scale, shift, scale', shift' [, w'', scale'', shift''])
template <int64_t stride> static Tensor call_block(const Tensors& t) {
  const auto wide = [&](const Tensor& v) {  // but in a test of the error
    return t[1].dtype() != t[0].dtype() || v.dtype() == DType::f64 ? v : cast(v, DType::f32);
  };
  const ConvNorm first{t[1], wide(t[3]), wide(t[4])}, second{t[2], wide(t[5]), wide(t[6])};
  if (t.size() == 7) return residual_block(t[0], first, second, {}, stride);
  return residual_block(t[0], first, second, {t[7], wide(t[8]), wide(t[9])}, stride);
}
static Sample block(const char* tag, const Shape& x, int64_t k, Tensor (*call)(const Tensors&), bool projects) {
  const int64_t c = x[3];
  Sample s{tag, {{x}, {{k, 3, 3, c}}, {{k, 3, 3, k}}, {{k}, 0.5, 1.5}, {{k}}, {{k}, 0.5, 1.5}, {{k}}}, call};
  if (projects) s.inputs.insert(s.inputs.end(), {{{k, 1, 1, c}}, {{k}, 0.5, 1.5}, {{k}}});
  return s;
}
static double block_flops(const Tensors& t, const Tensor& y) {
  double of_a_place = double(t[1].size() + t[2].size());
  if (t.size() > 7) of_a_place += double(t[7].size());
  return 2 * of_a_place * double(y.size() / y.dim(-1));
}
static const RegisterOp register_residual_block{{
    .name = "residual_block",
    .samples = std::vector<Sample>{block("same", {2, 4, 3, 4}, 4, call_block<1>, false),
                                   block("projected", {2, 5, 4, 3}, 5, call_block<2>, true),
                                   block("projected_stride_1", {1, 3, 4, 3}, 4, call_block<1>, true),
                                   block("vectors", {2, 4, 4, 32}, 32, call_block<1>, false),
                                   block("vectors_projected", {2, 6, 5, 32}, 64, call_block<2>, true)},
    .workloads = std::vector<Sample>{block("128x32x32x64", {128, 32, 32, 64}, 64, call_block<1>, false),
                                     block("128x32x32x64_128", {128, 32, 32, 64}, 128, call_block<2>, true),
                                     block("128x16x16x128", {128, 16, 16, 128}, 128, call_block<1>, false),
                                     block("128x8x8x256", {128, 8, 8, 256}, 256, call_block<1>, false),
                                     block("128x4x4x512", {128, 4, 4, 512}, 512, call_block<1>, false)},
    .invalid = std::vector<Sample>{block("channels", {2, 4, 3, 4}, 5, call_block<1>, false),
                                   block("shortcut", {2, 4, 4, 4}, 4, call_block<2>, false),
                                   block("one_value", {1, 1, 1, 4}, 4, call_block<1>, false),
                                   block("no_images", {0, 4, 4, 4}, 4, call_block<1>, false),
                                   block("no_channels", {2, 4, 4, 0}, 0, call_block<1>, false),
                                   block("stride", {2, 4, 4, 4}, 4, call_block<0>, true)},
    .flops = block_flops,
    .tolerance = 256,  // Winograd's transforms twice, and normalisation by few values
}};

}  // namespace ringtape
