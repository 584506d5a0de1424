#include "kernels/argmax.h"

#include <algorithm>

#include "core/tensor.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/order.h"

namespace ringtape::cuda {
namespace {

constexpr int kArgmaxThreads = 256;
constexpr int64_t kArgmaxPart = 4096, kArgmaxBlocks = 1024;  // elements per part at least; blocks that keep a GPU busy

struct Best {
  uint64_t key;
  int64_t at;
};

struct Better {  // the larger key; of equal ones that in front
  template <class A> static __device__ A identity() { return A{0, std::numeric_limits<int64_t>::max()}; }
  template <class A> static __device__ A combine(A a, A b) {
    return b.key > a.key || (b.key == a.key && b.at < a.at) ? b : a;
  }
};

// Part blockIdx.y of row blockIdx.x of (rows, n).
template <class T>
__global__ void __launch_bounds__(kArgmaxThreads)
    argmax_row(Best* best, const T* x, int64_t n, int64_t part, bool smallest) {
  const int64_t begin = blockIdx.y * part, end = begin + part < n ? begin + part : n;
  Best own = Better::identity<Best>();
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    own = Better::combine(own, Best{Order<T>::rank(x[blockIdx.x * n + i], smallest), i});
  own = block_reduce<Better>(own);
  if (threadIdx.x == 0) best[int64_t(blockIdx.x) * gridDim.y + blockIdx.y] = own;
}

// The same for the columns (o, r) of (O, n, R), one per thread.
template <class T>
__global__ void __launch_bounds__(kArgmaxThreads)
    argmax_column(Best* best, const T* x, int64_t columns, int64_t n, int64_t row, int64_t part, bool smallest) {
  const int64_t column = thread_in_grid();
  if (column >= columns) return;
  const T* const from = x + column / row * n * row + column % row;
  const int64_t begin = blockIdx.y * part, end = begin + part < n ? begin + part : n;
  Best own = Better::identity<Best>();
  for (int64_t i = begin; i < end; ++i) own = Better::combine(own, Best{Order<T>::rank(from[i * row], smallest), i});
  best[column * gridDim.y + blockIdx.y] = own;
}

__global__ void argmax_parts(int64_t* index, const Best* best, int64_t columns, int64_t parts) {
  for (int64_t i = thread_in_grid(); i < columns; i += threads_in_grid()) {
    Best own = best[i * parts];
    for (int64_t q = 1; q < parts; ++q) own = Better::combine(own, best[i * parts + q]);
    index[i] = own.at;
  }
}

}  // namespace

void argmax_forward(View index, View x, bool smallest) {
  const int64_t columns = index.size(), n = x.dims[1], row = x.dims[2];
  if (columns == 0) return;
  const bool rows = row == 1;
  const int64_t blocks = rows ? columns : divide_up(columns, kArgmaxThreads);
  const int64_t most =
      std::min(divide_up(n, rows ? kArgmaxPart : kArgmaxPart / kArgmaxThreads), divide_up(kArgmaxBlocks, blocks));
  const int64_t part = divide_up(n, most), parts = divide_up(n, part);
  const Tensor scratch({columns * parts * 2}, DType::i64, x.device);
  Best* const best = static_cast<Best*>(View(scratch).data);
  const Grid grid{dim3(unsigned(blocks), unsigned(parts)), dim3(kArgmaxThreads)};
  dispatch(x.dtype, [&]<class T>() {
    rows ? launch<argmax_row<T>>(x.device, grid, best, x.as<T>(), n, part, smallest)
         : launch<argmax_column<T>>(x.device, grid, best, x.as<T>(), columns, n, row, part, smallest);
  });
  launch<argmax_parts>(x.device, covering(x.device, columns), index.as<int64_t>(), best, columns, parts);
}

}  // namespace ringtape::cuda
