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

// Every differentiable function. Shapes broadcast as in NumPy; negative axes count from the end; operands of different
// dtypes are an error (cast one). Errors: ShapeError, DTypeError, DeviceError naming the op.
namespace ringtape {

using Axes = std::vector<int>;  // {} means all axes

// Elementwise: neg abs exp log sqrt rsqrt square relu sigmoid tanh gelu (exact, with erf). The slope of relu at 0 and
// NaN is 0.
#define X(name, ...) Tensor name(const Tensor& x);
RT_UNARY_OPS(X)
#undef X

// Elementwise with broadcasting: add sub mul div maximum minimum pow. A number acts as a tensor. Equal a and b share
// the gradient of maximum and minimum.
#define X(name, ...)                             \
  Tensor name(const Tensor& a, const Tensor& b); \
  Tensor name(const Tensor& a, double b);        \
  Tensor name(double a, const Tensor& b);
RT_BINARY_OPS(X)
#undef X

// Comparisons with broadcasting, b8, without gradient: equal not_equal less less_equal greater greater_equal. A number
// is rounded to a floating a's dtype.
#define X(name, ...)                             \
  Tensor name(const Tensor& a, const Tensor& b); \
  Tensor name(const Tensor& a, double b);
RT_COMPARE_OPS(X)
#undef X

Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b);  // cond (b8) ? a : b
Tensor clamp(const Tensor& x, double low, double high);              // NaN stays NaN; slope 1 at both bounds

// Over the given axes, which are removed unless keepdim.
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
Tensor max(const Tensor& x, const Axes& axes = {}, bool keepdim = false);  // ties share the gradient; empty: -inf
Tensor var(const Tensor& x, const Axes& axes = {}, bool keepdim = false, double correction = 1);
Tensor logsumexp(const Tensor& x, const Axes& axes = {}, bool keepdim = false);

// (..., m, k) x (..., k, n) -> (..., m, n); leading axes broadcast. Transposed operands are not copied.
Tensor matmul(const Tensor& a, const Tensor& b);
// x (..., I), w (O, I), b (O) or undefined -> (..., O): f(x w^T + b).
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {}, Activation f = Activation::none);

// Images are NHWC. x (N, H, W, C), w (K, R, S, C / groups), b (K) or undefined -> (N, Ho, Wo, K). The number of groups
// follows from the shapes.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b = {},
              const Window& window = {});  // rounding: kernels/conv2d.h
// The running state of batch_norm: mean and var (C), and the number of batches so far, i64 (). Updated in place on the
// device.
struct RunningStatistics {
  Tensor mean, var, batches;
};
// The owners of the other parts of a batch, if batch_norm normalises by the statistics of all parts
// (comm/parallel/sync_batch_norm.h). All take part in every call, in the same order.
class BatchNormPeers {
 public:
  virtual ~BatchNormPeers() = default;
  virtual Tensor gather(const Tensor& own) const = 0;  // (n) -> (parts, n): all parts' values, the same for all
  virtual void add(const Tensor& sums) const = 0;      // in place: the sum over all parts, the same for all
};
struct BatchNormOptions {
  bool training = true;  // normalise by the batch and update the running statistics; else use them
  double momentum = 0.1, eps = 1e-5;
  int64_t parts =
      1;  // normalise the batch in this many equal parts of its first axis; the mean of their statistics is kept
  std::shared_ptr<const BatchNormPeers> peers = nullptr;  // none: x is the whole batch
};
// f((x - mean) w / sqrt(var + eps) + b + residual): x (..., C), statistics over all axes except the last; w, b (C), f32
// for f32 and 16-bit x, f64 for f64. residual has x's shape or is undefined. In training the running statistics may be
// undefined.
Tensor batch_norm(const Tensor& x, const Tensor& w, const Tensor& b, const RunningStatistics& running,
                  const BatchNormOptions& options = {}, Activation f = Activation::none, const Tensor& residual = {});

// Images (N, H, W, C) over windows of r x s, stride and padding in Window. Padding is never the maximum (a window of
// padding only gives -inf), and counts as zeros in a mean. The mean over whole images is mean(x, {1, 2}).
Tensor max_pool2d(const Tensor& x, int64_t r, int64_t s, const Window& window);
Tensor avg_pool2d(const Tensor& x, int64_t r, int64_t s, const Window& window);
// Adds rows above and below and columns on both sides of images (N, H, W, C), filled with `value`.
Tensor pad2d(const Tensor& x, int64_t top, int64_t bottom, int64_t left, int64_t right, double value = 0);
Tensor to_nhwc(const Tensor& x);  // images (N, C, H, W) -> (N, H, W, C)
Tensor to_nchw(const Tensor& x);  // the inverse

Tensor softmax(const Tensor& x, int axis = -1);
Tensor log_softmax(const Tensor& x, int axis = -1);
Tensor l2_normalize(const Tensor& x, int axis = -1, double eps = 1e-12);  // x / max(||x||, eps)

enum class LossReduction : uint8_t { mean, none };
// logits (N, C), labels (N) i64 -> (), or (N) without reduction. label_smoothing in [0, 1) is the part of the target
// that is spread evenly over all classes.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing = 0,
                     LossReduction = LossReduction::mean);

// Normalised, temperature-scaled cross-entropy of pairs (SimCLR) -> (). q (2 n, D): the normalised embeddings of one
// view of all images, then those of the other. k (M, D): the candidates, with q's own rows from row `first` on; they
// may include those of other ranks, or be q itself with first 0. Each row is compared with all candidates except
// itself. With S = q k^T / temperature:
//   mean over i of  logsumexp over j != first + i of S[i, j]  -  S[i, first + (i + n) mod 2 n]
// S is never stored: forward and backward need O((2 n + M) D) memory. Computed in f32 (f64 for f64).
Tensor nt_xent(const Tensor& q, const Tensor& k, int64_t first, double temperature);

// 0 with probability p, else x / (1 - p). Without a state it draws from default_generator().
Tensor dropout(const Tensor& x, double p, std::optional<RandomState> state = {});

// Views: the result shares x's memory.
Tensor permute(const Tensor& x, const std::vector<int>& order);
Tensor transpose(const Tensor& x, int a = -2, int b = -1);
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end,
             int64_t step = 1);                      // [begin, end), both may be negative
Tensor expand(const Tensor& x, const Shape& shape);  // repeats axes of size 1, without a copy
Tensor reshape(const Tensor& x, const Shape& shape);  // one axis may be -1; copies if no view is possible
Tensor flatten(const Tensor& x, int first_axis = 1);  // (N, ...) -> (N, rest)

Tensor contiguous(const Tensor& x);                 // x itself if contiguous, else a row-major copy
Tensor concat(const Tensors& parts, int axis = 0);
Tensor flip(const Tensor& x, int axis);             // reverses the axis
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
