#pragma once
#include <utility>

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/vector.cuh"

// Kernels that work row by row on contiguous (rows, columns) operands of one dtype.
namespace ringtape::cuda {
namespace {

// Maximum per row that is held, with 64 registers each; for longer ones, which need more registers.
constexpr int kRowThreads = 1024, kLongRowThreads = 512;
// Packs of 16 bytes per operand that a thread has in flight: enough to hide latency, and they fit into registers.
constexpr int packs_of(int inputs) { return inputs == 1 ? 4 : 2; }

// One row of kInputs operands, as seen by a thread of its team: a few packs of kWidth neighbouring elements, which are
// read once and kept in registers. For longer rows (not kHeld) each pass reads them again, mostly from the caches, the
// same number at a time. A team without a row takes part with an empty one.
template <class T, int kInputs, int kWidth, bool kHeld> class Row {
 public:
  using C = compute_t<T>;
  static constexpr int kPacks = packs_of(kInputs);

  __device__ Row(const T* const (&in)[kInputs], int64_t rows, int64_t columns)
      : index_(int64_t(blockIdx.x) * blockDim.y + threadIdx.y), offset_(index_ * columns), columns_(columns),
        end_(index_ < rows ? columns : 0) {
    for (int k = 0; k < kInputs; ++k) in_[k] = in[k] + offset_;
    if constexpr (kHeld) read(0);
  }

  __device__ int64_t index() const { return index_; }
  __device__ int64_t columns() const { return columns_; }
  __device__ bool exists() const { return end_ == columns_; }
  __device__ bool writes() const { return threadIdx.x == 0; }

  // Reduces f(column, x...) over all columns with R. Every thread must call it, and gets the result.
  template <class R, class F> __device__ auto reduce(const F& f) {
    using A = decltype(call(f, 0, 0, 0, std::make_index_sequence<kInputs>{}));
    A total = R::template identity<A>();
    for_each_pack([&](int k, int64_t column) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        total = R::combine(total, call(f, k, j, column + j, std::make_index_sequence<kInputs>{}));
    });
    return team_reduce<R>(total);
  }

  // Writes y[row, column] = f(column, x...).
  template <class F> __device__ void write(T* y, const F& f) {
    for_each_pack([&](int k, int64_t column) {
      Vec<T, kWidth> out;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out.x[j] = T(call(f, k, j, column + j, std::make_index_sequence<kInputs>{}));
      store(y + offset_ + column, out);
    });
  }

 private:
  __device__ int64_t column_of(int64_t base, int k) const {
    return base + (int64_t(k) * blockDim.x + threadIdx.x) * kWidth;
  }
  __device__ void read(int64_t base) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (const int64_t column = column_of(base, k); column < end_)
#pragma unroll
        for (int i = 0; i < kInputs; ++i) packs_[i][k] = load<kWidth>(in_[i] + column);
  }
  // Calls f(pack, its first column) for the packs that the thread currently holds.
  template <class F> __device__ void for_each_kept(int64_t base, const F& f) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (const int64_t column = column_of(base, k); column < end_) f(k, column);
  }
  template <class F> __device__ void for_each_pack(const F& f) {
    if constexpr (kHeld) {
      for_each_kept(0, f);
    } else {
      for (int64_t base = 0; base < end_; base += int64_t(kPacks) * blockDim.x * kWidth) {
        read(base);
        for_each_kept(base, f);
      }
    }
  }
  template <class F, size_t... I>
  __device__ auto call(const F& f, int k, int j, int64_t column, std::index_sequence<I...>) const {
    return f(column, C(packs_[I][k].x[j])...);
  }

  const int64_t index_, offset_, columns_, end_;
  const T* in_[kInputs];
  alignas(16) Vec<T, kWidth> packs_[kInputs][kPacks] = {};
};

template <class F, int kWidth, bool kHeld>
__global__ void __launch_bounds__(kHeld ? kRowThreads : kLongRowThreads)
    row_kernel(F f, int64_t rows, int64_t columns) {
  using T = typename F::Element;
  Row<T, int(std::size(F{}.in)), kWidth, kHeld> row(f.in, rows, columns);
  f(row);
}

// Launches row_kernel with *f, `width` elements at a time: for rows that are held, or for longer ones.
inline void launch_rows(const Kernel& held, const Kernel& long_rows, Device device, const void* f, int inputs,
                        int width, int64_t rows, int64_t columns) {
  const int64_t threads = divide_up(columns / width, packs_of(inputs));
  const int team = threads <= kWarp         ? power_of_two(threads, kWarp)
                   : threads <= kRowThreads ? int(divide_up(threads, kWarp)) * kWarp
                                            : kLongRowThreads;
  const int teams = team <= kWarp ? 256 / team : 1;
  launch(threads <= kRowThreads ? held : long_rows, device,
         {dim3(unsigned(divide_up(rows, teams))), dim3(unsigned(team), unsigned(teams))}, {f, &rows, &columns});
}

// Runs f(Row&) for each row by a team of threads: from part of a warp, if that can hold the row, up to a block. F has
// `using Element` and `const Element* in[]`; `y` is its output, or null.
template <class F>
void for_each_row(Device device, const F& f, const typename F::Element* y, int64_t rows, int64_t columns) {
  using T = typename F::Element;
  const auto run = [&]<int kWidth>() {
    launch_rows(launchable<row_kernel<F, kWidth, true>>(), launchable<row_kernel<F, kWidth, false>>(), device, &f,
                int(std::size(f.in)), kWidth, rows, columns);
  };
  constexpr int wide = sizeof(T) == 8 ? 1 : int(16 / sizeof(T));  // f64 is only for checks: one element at a time
  bool vectors = columns % wide == 0 && aligned_width(wide, y) == wide;
  for (const T* in : f.in) vectors = vectors && aligned_width(wide, in) == wide;
  vectors ? run.template operator()<wide>() : run.template operator()<1>();
}

// For contiguous operands, along the last axis. No rows if there are no columns.
inline int64_t columns_of(const View& x) { return x.dims[x.rank - 1]; }
inline int64_t rows_of(const View& x) { return columns_of(x) ? x.size() / columns_of(x) : 0; }

}  // namespace
}  // namespace ringtape::cuda
