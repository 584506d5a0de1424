#include "kernels/cross_entropy.h"

#include "kernels/cuda/softmax.cuh"

namespace ringtape::cuda {
namespace {

template <class T>
struct CrossEntropyForward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[1];
  C *loss, *norms;
  const int64_t* labels;
  C smoothing;
  template <class R>
  __device__ void operator()(R& row) const {
    const auto [top, sum] = exp_sum<T>(row);
    // Distances from the maximum are halved, which is exact, because they may be twice the largest number.
    const C half_top = top / 2, share = 2 * smoothing / C(row.columns());
    const C spread =
        smoothing == 0 ? C(0) : row.template reduce<Sum>([=](int64_t, C x) { return share * (x / 2 - half_top); });
    if (!row.exists() || !row.writes()) return;
    const int64_t label = labels[row.index()];
    const bool known = label >= 0 && label < row.columns();
    const C at_label = known ? C(in[0][row.index() * row.columns() + label]) : std::numeric_limits<C>::quiet_NaN();
    norms[2 * row.index()] = top, norms[2 * row.index() + 1] = sum;
    loss[row.index()] = Math::log(sum) - 2 * (1 - smoothing) * (at_label / 2 - half_top) - spread;
  }
};

// dloss is f32 or f64, for any dtype of the logits.
template <class T>
struct CrossEntropyBackward {
  using Element = T;
  using C = compute_t<T>;
  const T* in[1];
  T* dlogits;
  const C* norms;
  const int64_t* labels;
  View dloss;
  C smoothing, scale;
  template <class R>
  __device__ void operator()(R& row) const {
    const int64_t r = row.exists() ? row.index() : 0;
    const C g = C(at(r * dloss.strides[0])) * scale, top = norms[2 * r], inverse = 1 / norms[2 * r + 1];
    const C off = smoothing / C(row.columns()), on = off + (1 - smoothing);
    const int64_t label = labels[r];
    row.write(dlogits,
              [=](int64_t column, C x) { return g * (exp_of<T>(x - top) * inverse - (column == label ? on : off)); });
  }
  __device__ double at(int64_t i) const {
    const float* narrow = static_cast<const float*>(dloss.data);
    return dloss.dtype == DType::f64 ? static_cast<const double*>(dloss.data)[i] : double(narrow[i]);
  }
};

}  // namespace

void cross_entropy_forward(View loss, View norms, View logits, View labels, double smoothing) {
  dispatch_float(logits.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const CrossEntropyForward<T> f{{logits.as<T>()}, loss.as<C>(), norms.as<C>(), labels.as<int64_t>(), C(smoothing)};
    for_each_row(logits.device, f, nullptr, logits.dims[0], logits.dims[1]);
  });
}

void cross_entropy_backward(View dlogits, View logits, View norms, View labels, View dloss, double smoothing,
                            double scale) {
  dispatch_float(logits.dtype, [&]<class T>() {
    using C = compute_t<T>;
    RT_CHECK_AS(DTypeError, dloss.dtype >= DType::f32, "cross_entropy: dloss is ", dloss.dtype, ", not f32 or f64");
    const CrossEntropyBackward<T> f{{logits.as<T>()}, dlogits.as<T>(), norms.as<C>(), labels.as<int64_t>(), dloss,
                                    C(smoothing),     C(scale)};
    for_each_row(logits.device, f, dlogits.as<T>(), rows_of(logits), columns_of(logits));
  });
}

}  // namespace ringtape::cuda
