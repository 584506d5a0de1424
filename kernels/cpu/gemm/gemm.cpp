#include "kernels/cpu/gemm/gemm.h"

#include <cstdlib>
#include <memory>

#include "core/memory_fill.h"
#include "core/parallel.h"
#include "kernels/bf16_unit.h"
#include "kernels/cpu/gemm/gemm_amx.h"
#include "kernels/cpu/gemm/gemm_block.h"
#include "kernels/cpu/gemm/gemm_pairs.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

constexpr int64_t kParallelWork = 1 << 17;  // multiply-adds that justify another thread: about 1.5 us

// Memory per thread that grows to the largest request.
void* scratch_memory(size_t bytes) {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local size_t capacity = 0;
  if (bytes > capacity) {
    capacity = 0;
    memory.reset();
    memory.reset(std::aligned_alloc(4096, size_t(round_up(int64_t(bytes), 4096))));
    RT_CHECK_AS(OutOfMemory, memory, "no memory for ", bytes, " bytes of matrix multiplication scratch");
    capacity = bytes;
  }
  fill_memory(memory.get(), bytes);
  return memory.get();
}

// With such a small k, most time goes into writing c.
constexpr int64_t kShallow = 64;

// Number of parts of the rows. Of the ways to divide (m, n) into `parts` rectangles, chooses the smallest perimeter, so
// the least packing. A shallow product is divided into bands of rows: each core writes its own part of memory,
// and finds it in its cache when the optimizer reads it (backward of the MLP at batch 16, 2 threads: 20 us instead of
// 24).
int64_t row_parts_of(int64_t m, int64_t n, int64_t k, int64_t parts) {
  if (k <= kShallow && m >= parts * kTileRows) return parts;
  int64_t best = 1;
  for (int64_t r = 2; r <= parts; ++r)
    if (parts % r == 0 && m / r + n / (parts / r) < m / best + n / (parts / best)) best = r;
  return best;
}

// Threads compute rectangles of the product.
template <class Whole> void in_parts(const Whole& whole, int64_t m, int64_t n, int64_t k) {
  using C = typename Whole::C;
  constexpr int64_t width = Whole::kWidth;
  const int64_t parts = std::clamp<int64_t>(m * n * k / kParallelWork, 1, threads());
  const int64_t row_parts = row_parts_of(m, n, k, parts), col_parts = parts / row_parts;
  const int64_t panels = ceil_div(n, width), each = round_up(whole.scratch_size(), 64);
  C* scratch = each ? static_cast<C*>(scratch_memory(size_t(each * parts) * sizeof(C))) : nullptr;
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      const Range cols = part_of(panels, col_parts, q % col_parts);
      whole.run(part_of(m, row_parts, q / col_parts), {cols.begin * width, std::min<int64_t>(n, cols.end * width)},
                scratch + q * each);
    }
  });
}

}  // namespace

template <class T>
void gemm(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, const T* bias, Matrix<T> c) {
  if (m <= 0 || n <= 0) return;
  if constexpr (std::is_same_v<T, bf16>) {
    const bool by_one =
        (a.row_stride == 1 || a.col_stride == 1) && (b.row_stride == 1 || b.col_stride == 1) && c.col_stride == 1;
    const Bf16Unit unit = bf16_choice().unit;
    if (unit == Bf16Unit::amx && by_one && amx_gemm_pays(m, n, k)) return amx_gemm(m, n, k, a, b, bias, c);
    if (unit == Bf16Unit::avx512_bf16) return in_parts(PairedGemm(m, n, k, a, b, bias, c), m, n, k);
  }
  in_parts(Gemm<T>(m, n, k, a, b, bias, c), m, n, k);
}

template void gemm(int64_t, int64_t, int64_t, Matrix<const float>, Matrix<const float>, const float*, Matrix<float>);
template void gemm(int64_t, int64_t, int64_t, Matrix<const double>, Matrix<const double>, const double*,
                   Matrix<double>);
template void gemm(int64_t, int64_t, int64_t, Matrix<const f16>, Matrix<const f16>, const f16*, Matrix<f16>);
template void gemm(int64_t, int64_t, int64_t, Matrix<const bf16>, Matrix<const bf16>, const bf16*, Matrix<bf16>);

RT_ISA_END
