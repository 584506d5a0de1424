#pragma once
#include <memory>
#include <optional>

#include "core/random.h"
#include "core/tensor.h"
#include "kernels/binary.h"
#include "kernels/compare.h"
#include "kernels/matmul.h"
#include "kernels/unary.h"
#include "kernels/window.h"

// Every differentiable function. Shapes broadcast as in NumPy; negative axes count from the end; operands of two
// dtypes are an error (cast one), never converted silently. Errors: ShapeError, DTypeError, DeviceError naming the op.
namespace ringtape {

using Axes = std::vector<int>;  // {} means all axes

// Elementwise: neg abs exp log sqrt rsqrt square relu sigmoid tanh gelu (the exact one, with erf). The slope of relu at 0 and NaN is 0.
#define X(name, ...) Tensor name(const Tensor& x);
RT_UNARY_OPS(X)
#undef X

// Elementwise with broadcasting: add sub mul div maximum minimum pow. A number stands for a tensor of it. Equal a, b: half each.
#define X(name, ...)                             \
  Tensor name(const Tensor& a, const Tensor& b); \
  Tensor name(const Tensor& a, double b);        \
  Tensor name(double a, const Tensor& b);
RT_BINARY_OPS(X)
#undef X

// Comparisons with broadcasting, giving b8 and no gradient: equal not_equal less less_equal greater greater_equal; numbers rounded.
#define X(name, ...)                             \
  Tensor name(const Tensor& a, const Tensor& b); \
  Tensor name(const Tensor& a, double b);
RT_COMPARE_OPS(X)
#undef X

Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b);  // cond (b8) ? a : b
Tensor clamp(const Tensor& x, double low, double high);              // NaN stays NaN; slope 1 at both bounds

// Over the given axes, which disappear unless keepdim.
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
Tensor max(const Tensor& x, const Axes& axes = {}, bool keepdim = false);  // ties share the gradient; of nothing -inf
Tensor var(const Tensor& x, const Axes& axes = {}, bool keepdim = false, double correction = 1);
Tensor logsumexp(const Tensor& x, const Axes& axes = {}, bool keepdim = false);

// (..., m, k) x (..., k, n) -> (..., m, n); leading axes broadcast. Transposed operands cost nothing.
Tensor matmul(const Tensor& a, const Tensor& b);
// x (..., I), w (O, I), b (O) or undefined -> (..., O): x w^T + b, through f.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {}, Activation f = Activation::none);

// Images are NHWC. x (N, H, W, C), w (K, R, S, C / groups), b (K) or undefined -> (N, Ho, Wo, K); the shapes decide the groups.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b = {}, const Window& window = {});  // rounding: kernels/conv2d.h
// What batch_norm keeps from call to call: (C) each, and how many batches have been seen, i64 (). Updated in place, on the device.
struct RunningStatistics {
  Tensor mean, var, batches;
};
// Who has the other parts of a batch, where batch_norm is to normalise each by the statistics of all (comm/sync_batch_norm.h). All take
// part in every call, in the same order.
class BatchNormPeers {
 public:
  virtual ~BatchNormPeers() = default;
  virtual Tensor gather(const Tensor& own) const = 0;  // (n) -> (parts, n): everybody's, the same for all
  virtual void add(const Tensor& sums) const = 0;      // in place: the sum of everybody's, the same for all
};
struct BatchNormOptions {
  bool training = true;  // normalise by the batch and update what is kept; else normalise by what is kept
  double momentum = 0.1, eps = 1e-5;
  int64_t parts = 1;  // a batch is normalised in so many equal parts along its first axis, and the mean of their statistics kept
  std::shared_ptr<const BatchNormPeers> peers = nullptr;  // none: x is the whole batch
};
// f((x - mean) w / sqrt(var + eps) + b + residual): x (..., C), the statistics over all axes but the last; w, b (C), f32 where x is f32
// or 16-bit, f64 with f64; residual, of x's shape, may be undefined, and in training the running statistics too.
Tensor batch_norm(const Tensor& x, const Tensor& w, const Tensor& b, const RunningStatistics& running, const BatchNormOptions& options = {},
                  Activation f = Activation::none, const Tensor& residual = {});

// Images (N, H, W, C) over windows of r x s, stride and padding as Window says; padding is never the largest, and counts as zeros in
// a mean; the largest of padding alone is -inf. The mean over whole images is mean(x, {1, 2}).
Tensor max_pool2d(const Tensor& x, int64_t r, int64_t s, const Window& window);
Tensor avg_pool2d(const Tensor& x, int64_t r, int64_t s, const Window& window);
// Rows above and below and columns on both sides of images (N, H, W, C), of one value.
Tensor pad2d(const Tensor& x, int64_t top, int64_t bottom, int64_t left, int64_t right, double value = 0);
Tensor to_nhwc(const Tensor& x);  // images of the outside world (N, C, H, W) -> (N, H, W, C)
Tensor to_nchw(const Tensor& x);  // and back

Tensor softmax(const Tensor& x, int axis = -1);
Tensor log_softmax(const Tensor& x, int axis = -1);
Tensor l2_normalize(const Tensor& x, int axis = -1, double eps = 1e-12);  // x / max(||x||, eps)

enum class Reduction : uint8_t { mean, none };
// logits (N, C), labels (N) i64 -> () or, without reduction, (N). label_smoothing in [0, 1) spreads that part of the
// target evenly over all classes.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing = 0, Reduction = Reduction::mean);

// Normalised, temperature-scaled cross-entropy of pairs (SimCLR) -> (). q (2 n, D) has the normalised embeddings of one view of all images,
// then those of the other; k (M, D) the candidates, with q's own rows from row `first` on: those of other ranks too, or q itself with first
// 0. Each row is compared with all candidates but itself, S = q k^T / temperature:
//   mean over i of  logsumexp over j != first + i of S[i, j]  -  S[i, first + (i + n) mod 2 n]
// S is never in memory: forward and backward take O((2 n + M) D). f32 (f64 of f64) whatever the operands are.
Tensor nt_xent(const Tensor& q, const Tensor& k, int64_t first, double temperature);

// x / (1 - p) where kept, 0 with probability p. Without a state it draws from default_generator().
Tensor dropout(const Tensor& x, double p, std::optional<RandomState> state = {});

// Views: the result shares x's memory.
Tensor permute(const Tensor& x, const std::vector<int>& order);
Tensor transpose(const Tensor& x, int a = -2, int b = -1);
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step = 1);  // [begin, end), both may be negative
Tensor expand(const Tensor& x, const Shape& shape);  // repeats axes of size 1, without memory
Tensor reshape(const Tensor& x, const Shape& shape);  // one axis may be -1; copies where strides make a view impossible
Tensor flatten(const Tensor& x, int first_axis = 1);  // (N, ...) -> (N, rest)

Tensor contiguous(const Tensor& x);                 // x itself if it is, else a copy in row-major order
Tensor concat(const Tensors& parts, int axis = 0);
Tensor flip(const Tensor& x, int axis);             // the last one first
Tensor index_select(const Tensor& x, int axis, const Tensor& index);  // index (I) i64
Tensor cast(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(double a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }

}  // namespace ringtape
