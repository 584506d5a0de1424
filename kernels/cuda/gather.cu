#include "kernels/gather.h"

#include <bit>
#include <limits>

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/vector.cuh"

namespace ringtape::cuda {
namespace {

template <class U>
__global__ void gather_elements(U* y, const U* x, const int64_t* index, int64_t total, int64_t count, int64_t n,
                                int64_t row, U missing) {
  for (int64_t i = thread_in_grid(); i < total; i += threads_in_grid()) {
    const int64_t from = index[i];
    y[i] = from >= 0 && from < n ? x[(i / (count * row) * n + from) * row + i % row] : missing;
  }
}

template <class T> T missing_element() {
  if constexpr (is_half_v<T> || std::is_floating_point_v<T>) return T(std::numeric_limits<compute_t<T>>::quiet_NaN());
  else return T(0);
}

// Each element by itself: no two have the same place.
template <class T>
__global__ void scatter_add_elements(T* y, const int64_t* index, const T* src, int64_t total, int64_t count, int64_t n,
                                     int64_t row) {
  using C = compute_t<T>;
  for (int64_t i = thread_in_grid(); i < total; i += threads_in_grid()) {
    const int64_t at = index[i];
    if (at < 0 || at >= n) continue;
    T* const sum = y + (i / (count * row) * n + at) * row + i % row;
    *sum = T(C(*sum) + C(src[i]));
  }
}

// Many columns (o, r): a thread owns each, so that sums into one place happen in the order of i.
template <class T>
__global__ void scatter_add_columns(T* y, const int64_t* index, const T* src, int64_t columns, int64_t count, int64_t n,
                                    int64_t row) {
  using C = compute_t<T>;
  for (int64_t column = thread_in_grid(); column < columns; column += threads_in_grid()) {
    const int64_t o = column / row, r = column % row;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = (o * count + i) * row + r, at = index[from];
      if (at < 0 || at >= n) continue;
      T* const sum = y + (o * n + at) * row + r;
      *sum = T(C(*sum) + C(src[from]));
    }
  }
}

// Few columns: a warp owns each place, and searches the whole index of its column for it.
template <class T>
__global__ void scatter_add_places(T* y, const int64_t* index, const T* src, int64_t places, int64_t count, int64_t n,
                                   int64_t row) {
  using C = compute_t<T>;
  const int64_t place = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (place >= places) return;
  const int64_t o = place / (n * row), own = place / row % n, first = o * count * row + place % row;
  T sum = threadIdx.x == 0 ? y[place] : T(0);  // the one that it writes
  for (int64_t base = 0; base < count; base += kWarp) {
    const int64_t i = base + threadIdx.x;
    const bool equal = i < count && index[first + i * row] == own;
    for (unsigned found = __ballot_sync(kAllLanes, equal); found; found &= found - 1)
      sum = T(C(sum) + C(src[first + (base + __ffs(int(found)) - 1) * row]));
  }
  if (threadIdx.x == 0) y[place] = sum;
}

constexpr int64_t kManyColumns = 1024, kShortColumn = 64;

}  // namespace

void gather_forward(View y, View x, View index) {
  const int64_t total = y.size();
  if (total == 0) return;
  dispatch(y.dtype, [&]<class T>() {
    using U = bits_t<T>;
    launch<gather_elements<U>>(y.device, covering(y.device, total), y.as<U>(), x.as<U>(), index.as<int64_t>(), total,
                               y.dims[1], x.dims[1], y.dims[2], std::bit_cast<U>(missing_element<T>()));
  });
}

void scatter_add_forward(View y, View index, View src, bool unique) {
  const int64_t n = y.dims[1], row = y.dims[2], columns = y.dims[0] * row, count = src.dims[1];
  if (y.size() == 0 || src.size() == 0) return;
  dispatch(y.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) detail::fail<DTypeError>({"scatter_add: no sums of b8; cast it"});
    else if (unique)
      launch<scatter_add_elements<T>>(y.device, covering(y.device, src.size()), y.as<T>(), index.as<int64_t>(),
                                      src.as<T>(), src.size(), count, n, row);
    else if (columns >= kManyColumns || count <= kShortColumn)
      launch<scatter_add_columns<T>>(y.device, covering(y.device, columns), y.as<T>(), index.as<int64_t>(), src.as<T>(),
                                     columns, count, n, row);
    else
      launch<scatter_add_places<T>>(y.device,
                                    Grid{dim3(unsigned(divide_up(y.size(), 256 / kWarp))), dim3(kWarp, 256 / kWarp)},
                                    y.as<T>(), index.as<int64_t>(), src.as<T>(), y.size(), count, n, row);
  });
}

}  // namespace ringtape::cuda
