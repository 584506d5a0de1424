#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/scalar.h"
#include "core/random.h"
#include "core/tensor.h"
#include "kernels/activation.h"
#include "kernels/elementwise_ops.h"
#include "kernels/window.h"

// Every differentiable function. Shapes broadcast as in NumPy; negative axes count from the end. Elementwise arithmetic
// and where() take operands of different dtypes (autograd/scalar.h says what comes out); elsewhere they are an error
// (cast one). Errors: ShapeError, DTypeError, DeviceError naming the op.
namespace ringtape {

using Axes = std::vector<int>;  // {} means all axes

// Elementwise: neg abs exp expm1 log log2 log1p sqrt rsqrt reciprocal square sin cos erf floor ceil round (half to
// even) trunc sign relu sigmoid log_sigmoid softplus tanh gelu (exact, with erf) silu mish selu hardsigmoid hardswish.
// The slope of relu at 0 and NaN is 0. Of whole numbers neg abs square relu sign floor ceil round trunc are whole, the
// others f32.
#define X(name, ...) Tensor name(const Tensor& x);
RT_UNARY_OPS(X)
RT_STEP_OPS(X)
#undef X
// leaky_relu(x, slope) and elu(x, alpha).
#define X(name, y, dx, needs, number, ...) Tensor name(const Tensor& x, double p = number);
RT_UNARY_NUMBER_OPS(X)
#undef X

// Elementwise with broadcasting: add sub mul div maximum minimum pow remainder (the sign of b) floor_divide atan2. A
// number acts as a tensor. Equal a and b share the gradient of maximum and minimum. Whole numbers are exact modulo
// 2^bits, truth values add as "or" and multiply as "and"; div and atan2 of them are f32. Of whole numbers floor_divide
// and remainder by 0 are 0, and pow with a negative exponent is rounded to 0.
#define X(name, ...)                             \
  Tensor name(const Tensor& a, const Tensor& b); \
  Tensor name(const Tensor& a, Scalar b);        \
  Tensor name(Scalar a, const Tensor& b);
RT_BINARY_OPS(X)
#undef X

// Of whole numbers, bit by bit, and of truth values, with broadcasting: bitwise_and bitwise_or bitwise_xor bitwise_not.
#define X(name, ...) Tensor name(const Tensor& a, const Tensor& b);
RT_BIT_OPS(X)
#undef X
Tensor bitwise_not(const Tensor& x);

// Comparisons and logic with broadcasting, b8, without gradient: equal not_equal less less_equal greater greater_equal
// logical_and logical_or logical_xor (what is not 0 is true). A number is rounded to a floating a's dtype.
#define X(name, ...)                             \
  Tensor name(const Tensor& a, const Tensor& b); \
  Tensor name(const Tensor& a, Scalar b);
RT_COMPARE_OPS(X)
#undef X
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);

// cond (b8) ? a : b. A number acts as a tensor.
Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& cond, const Tensor& a, Scalar b);
Tensor where(const Tensor& cond, Scalar a, const Tensor& b);
// min(max(x, low), high); NaN stays NaN; slope 1 at both bounds. Bounds that are tensors broadcast, and share the slope
// of what equals them.
Tensor clamp(const Tensor& x, Scalar low, Scalar high);
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);

// Over the given axes, which are removed unless keepdim. Sums and products of whole numbers and truth values are i64,
// exact modulo 2^64, their mean is f32; their max and min keep the dtype.
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
Tensor prod(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
Tensor max(const Tensor& x, const Axes& axes = {}, bool keepdim = false);  // ties share the gradient; empty: -inf
Tensor min(const Tensor& x, const Axes& axes = {}, bool keepdim = false);  // likewise; empty: inf
Tensor any(const Tensor& x, const Axes& axes = {}, bool keepdim = false);  // b8: whether one is not 0; empty: false
Tensor all(const Tensor& x, const Axes& axes = {}, bool keepdim = false);  // b8: whether none is 0; empty: true
Tensor var(const Tensor& x, const Axes& axes = {}, bool keepdim = false, double correction = 1);
// The root of var; its slope is 0 where that is 0, as that of norm.
Tensor standard_deviation(const Tensor& x, const Axes& axes = {}, bool keepdim = false, double correction = 1);
Tensor norm(const Tensor& x, const Axes& axes = {}, bool keepdim = false, double p = 2);  // sum(|x|^p)^(1/p)
Tensor logsumexp(const Tensor& x, const Axes& axes = {}, bool keepdim = false);

// (..., m, k) x (..., k, n) -> (..., m, n); leading axes broadcast. Transposed operands are not copied. A vector (k) is
// a row in front and a column behind; its axis of size 1 is not in the result.
Tensor matmul(const Tensor& a, const Tensor& b);
// Sums of products, "bqd,bkd->bqk": a label per axis, the same for axes that go together; those missing from the result
// are summed over. Without "->" the result has the labels that occur once. A label that an operand has twice: its
// diagonal. "...": any number of axes, which broadcast. More than two operands are multiplied from left to right.
Tensor einsum(std::string_view equation, const Tensors& operands);
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
// for f32 and 16-bit x, f64 for f64, or undefined (1 and 0). residual has x's shape or is undefined. In training the
// running statistics may be undefined.
Tensor batch_norm(const Tensor& x, const Tensor& w, const Tensor& b, const RunningStatistics& running,
                  const BatchNormOptions& options = {}, Activation f = Activation::none, const Tensor& residual = {});

// A convolution without bias, and the batch normalisation after it: w (K, R, R, C); scale and shift (K), as w and b of
// batch_norm.
struct ConvNorm {
  Tensor w, scale, shift;
  RunningStatistics running = {};
};
// A residual block in training: relu(bn'(conv'(relu(bn(conv(x))))) + bn''(conv''(x))), padded to keep the size of an
// image but for `stride` of the first convolution and the shortcut's. x (N, H, W, C) -> (N, Ho, Wo, K). A shortcut
// without w is x itself. As conv2d and batch_norm one by one, but for the order of sums per channel, and on GPUs dw of
// f32 w, which 16 bits do not round. Keeps less for backward, and GPUs need fewer passes over memory
// (kernels/conv_norm.h). scale and shift are f32, or f64 for f64. Of `options`, momentum and eps are used.
Tensor residual_block(const Tensor& x, const ConvNorm& first, const ConvNorm& second, const ConvNorm& shortcut,
                      int64_t stride, const BatchNormOptions& options = {});
// Whether it is faster than its ops one by one, for x and the first w as the Autocast that is in force converts them.
bool fuses_residual_block(const Tensor& x, const Tensor& w, int64_t stride);

// (x - mean) w / sqrt(var + eps) + b, with the (biased) statistics of each row over the trailing axes that w or b has,
// or the last axis; rms_norm: x w / sqrt(mean(x^2) + eps). w and b may be undefined (1 and 0); else f32 for f32 and
// 16-bit x, f64 for f64, as in the next two.
Tensor layer_norm(const Tensor& x, const Tensor& w = {}, const Tensor& b = {}, double eps = 1e-5);
Tensor rms_norm(const Tensor& x, const Tensor& w = {}, double eps = 1e-6);
// The same for x (N, ..., C), with the statistics of each sample and each of `groups` groups of neighbouring channels
// over all axes between; instance_norm: of each channel. w, b (C).
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& w = {}, const Tensor& b = {}, double eps = 1e-5);
Tensor instance_norm(const Tensor& x, const Tensor& w = {}, const Tensor& b = {}, double eps = 1e-5);

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

// softmax(scale q k^T) v, as PyTorch's function of this name, for equal leading axes: q (..., N, D), k (..., M, D),
// v (..., M, E) -> (..., N, E). causal: query i sees keys 0 to i alone. Without a scale: 1 / sqrt(D). Scores are never
// stored: forward and backward need memory in proportion to N + M.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = false,
                                    std::optional<double> scale = {});
// The same for H heads whose queries, keys and values lie side by side, as one layer gives them: (A, T, 3 H D), in it
// q, k and v, in each the heads -> (A, T, H D). Nothing is copied, forward or backward.
Tensor self_attention(const Tensor& qkv, int64_t heads, bool causal = false, std::optional<double> scale = {});

// none: a loss for each element or sample; batch_mean: the sum, divided by the size of the first axis.
enum class LossReduction : uint8_t { mean, sum, none, batch_mean };

struct CrossEntropyOptions {
  double label_smoothing = 0;   // in [0, 1): the part of the target that is spread evenly over all classes
  int64_t ignore_index = -100;  // samples with this label have no loss and do not count in the mean
  Tensor weight = {};           // of each class, (C), f32 for f32 and 16-bit logits, f64 for f64; without gradient
  LossReduction reduction = LossReduction::mean;  // with weights the mean is divided by the sum of the labels' weights
};
// logits (..., C), labels (...) i64 or i32 -> (), or (...) without reduction; or targets (..., C), the probability of
// each class, of the logits' dtype: their mean is over the samples. Both have PyTorch's values. f32 for 16-bit logits.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options);
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing = 0,
                     LossReduction = LossReduction::mean);
struct NllOptions {
  int64_t ignore_index = -100;
  Tensor weight = {};
  LossReduction reduction = LossReduction::mean;
};
// The same from log-probabilities, as log_softmax gives them: -log_p[..., label].
Tensor nll_loss(const Tensor& log_p, const Tensor& labels, const NllOptions& options = {});

// Losses of a prediction x and a target of the same shape -> (), or that shape without reduction; f32 for 16-bit x.
Tensor mse_loss(const Tensor& x, const Tensor& target, LossReduction = LossReduction::mean);  // (x - t)^2
Tensor l1_loss(const Tensor& x, const Tensor& target, LossReduction = LossReduction::mean);   // |x - t|
// With d = |x - t|: d^2 / (2 beta) below beta, else d - beta / 2; and d^2 / 2 up to delta, else delta (d - delta / 2).
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta = 1, LossReduction = LossReduction::mean);
Tensor huber_loss(const Tensor& x, const Tensor& target, double delta = 1, LossReduction = LossReduction::mean);
struct BceOptions {  // factors of x's dtype that broadcast to x, without gradient: of each loss, of positive targets
  Tensor weight = {}, pos_weight = {};
  LossReduction reduction = LossReduction::mean;
};
// -pos_weight t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)) for logits x and targets t in [0, 1].
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const BceOptions& options = {});
struct KlDivOptions {
  bool log_target = false;                        // whether the target is a logarithm, too
  LossReduction reduction = LossReduction::mean;  // over elements; of distributions in rows: batch_mean
};
// t (log t - x) for log-probabilities x and probabilities t; 0 where t is 0.
Tensor kl_div(const Tensor& x, const Tensor& target, const KlDivOptions& options = {});

// Order, along an axis; of any dtype. NaN is above all other numbers, 0 and -0 are equal; equal elements keep their
// order. argmax and argmin: the first index (i64) of the extreme; of a NaN if there is one. Without an axis: over all.
Tensor argmax(const Tensor& x);
Tensor argmax(const Tensor& x, int axis, bool keepdim = false);
Tensor argmin(const Tensor& x);
Tensor argmin(const Tensor& x, int axis, bool keepdim = false);
struct SortResult {
  Tensor values, indices;  // indices: i64, where the values were
};
SortResult sort(const Tensor& x, int axis = -1, bool descending = false);
Tensor argsort(const Tensor& x, int axis = -1, bool descending = false);          // sort's indices
SortResult topk(const Tensor& x, int64_t k, int axis = -1, bool largest = true);  // the first k of the sorted axis
// Sums of each element and those in front of it along the axis; i64 for integers and b8.
Tensor cumsum(const Tensor& x, int axis);

// Normalised, temperature-scaled cross-entropy of pairs (SimCLR) -> (). q (2 n, D): the normalised embeddings of one
// view of all images, then those of the other. k (M, D): the candidates, with q's own rows from row `first` on; they
// may include those of other ranks, or be q itself with first 0. Each row is compared with all candidates except
// itself. With S = q k^T / temperature:
//   mean over i of  logsumexp over j != first + i of S[i, j]  -  S[i, first + (i + n) mod 2 n]
// S is never stored: forward and backward need O((2 n + M) D) memory, on GPUs with TF32 16 MiB more, or 512 bytes for
// each row. Computed in f32 (f64 for f64), or as TF32 where Arithmetic::tf32 allows it.
Tensor nt_xent(const Tensor& q, const Tensor& k, int64_t first, double temperature);

// 0 with probability p, else x / (1 - p). Without a state it draws from default_generator().
Tensor dropout(const Tensor& x, double p, std::optional<RandomState> state = {});

// Views: the result shares x's memory.
Tensor permute(const Tensor& x, const std::vector<int>& order);
Tensor transpose(const Tensor& x, int a = -2, int b = -1);
// [begin, end), as far as x has it; both may be negative, and the end kToEnd.
inline constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step = 1);
Tensor expand(const Tensor& x, const Shape& shape);          // repeats axes of size 1, without a copy; -1 keeps an axis
Tensor reshape(const Tensor& x, const Shape& shape);         // one axis may be -1; copies if no view is possible
Tensor flatten(const Tensor& x, int first_axis = 1);         // (N, ...) -> (N, rest)
Tensor unsqueeze(const Tensor& x, int axis);                 // a new axis of size 1 there
Tensor squeeze(const Tensor& x);                             // without all axes of size 1
Tensor squeeze(const Tensor& x, int axis);                   // without this one, if its size is 1
Tensor movedim(const Tensor& x, int from, int to);           // one axis to another place, the others as they are
Tensors split(const Tensor& x, int64_t size, int axis = 0);  // parts of one size, the last may be smaller
Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, int axis = 0);
Tensors chunk(const Tensor& x, int64_t count, int axis = 0);  // at most `count` parts of one size, the last smaller

Tensor contiguous(const Tensor& x);  // x itself if contiguous, else a row-major copy
// Contiguous results that never share x's memory, also where nothing moves.
Tensor concat(const Tensors& parts, int axis = 0);
Tensor stack(const Tensors& parts, int axis = 0);       // along a new axis
Tensor repeat(const Tensor& x, const Shape& counts);    // counts[i] times along axis i; new axes in front
Tensor flip(const Tensor& x, int axis);                 // reverses the axis
Tensor roll(const Tensor& x, int64_t shift, int axis);  // element i goes to i + shift, modulo the size
Tensor tril(const Tensor& x, int64_t diagonal = 0);     // matrices (..., M, N) with zeros above that diagonal
Tensor triu(const Tensor& x, int64_t diagonal = 0);     // or below it

// With an index, i64 or i32, whose elements are in [0, n): others throw UsageError on a CPU, on CUDA they give NaN and
// are left out of sums. Sums are made in the order of the index: the same bytes every time.
Tensor index_select(const Tensor& x, int axis, const Tensor& index);  // index (I)
// y[i][j] = x[i][index[i][j]] along axis 1: y has index's shape, which must not exceed x's along other axes.
Tensor gather(const Tensor& x, int axis, const Tensor& index);
// x with y[i][index[i][j]] += src[i][j] along axis 1; the index must not exceed src, and x along other axes.
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& src);
// The rows of weight (V, D) -> index's shape and D. The row `padding` gets no gradient.
Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<int64_t> padding = {});
Tensor one_hot(const Tensor& index, int64_t classes);  // i64: index's shape and `classes`
// where(mask, value, x), of x's dtype: one that is not floating must hold the value.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
Tensor cast(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);

#define RT_OPERATOR(sign, name)                                                        \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { return name(a, b); } \
  inline Tensor operator sign(const Tensor& a, Scalar b) { return name(a, b); }        \
  inline Tensor operator sign(Scalar a, const Tensor& b) { return name(a, b); }
RT_OPERATOR(+, add)
RT_OPERATOR(-, sub)
RT_OPERATOR(*, mul)
RT_OPERATOR(/, div)
RT_OPERATOR(%, remainder)
#undef RT_OPERATOR
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return bitwise_xor(a, b); }
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }

}  // namespace ringtape
