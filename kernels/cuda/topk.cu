#include "kernels/topk.h"

#include "kernels/cuda/rows.cuh"

namespace ringtape::cuda {
namespace {

template <class T> struct LabelRank {
  using Element = T;
  using C = compute_t<T>;
  const T* in[1];
  int64_t* rank;
  const int64_t* labels;
  template <class R> __device__ void operator()(R& row) const {
    const int64_t label = row.exists() ? labels[row.index()] : -1;
    const bool known = label >= 0 && label < row.columns();
    const C own = known ? C(in[0][row.index() * row.columns() + label]) : std::numeric_limits<C>::quiet_NaN();
    const int64_t beaten =
        row.template reduce<Sum>([=](int64_t column, C x) { return int64_t(x > own || (x == own && column < label)); });
    if (row.exists() && row.writes()) rank[row.index()] = own == own ? beaten : row.columns();
  }
};

}  // namespace

void label_rank(View rank, View scores, View labels) {
  dispatch_float(scores.dtype, [&]<class T>() {
    const LabelRank<T> f{{scores.as<T>()}, rank.as<int64_t>(), labels.as<int64_t>()};
    for_each_row(scores.device, f, nullptr, scores.dims[0], scores.dims[1]);
  });
}

}  // namespace ringtape::cuda
