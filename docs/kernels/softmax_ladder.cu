// The softmax of rows, in six steps: y = exp(x - top) / sum, where top is the largest x of the row and sum that of
// exp(x - top). docs/kernels.md says what each step gains, and how that is known. COUNTED(x[c]) is x[c]: the emulation
// counts these accesses.
#include "docs/kernels/softmax_ladder.h"

#include "kernels/cuda/softmax.cuh"

namespace ringtape::ladder {
namespace {

using namespace cuda;

constexpr Device kDevice{DeviceType::cuda, 0};
constexpr int kThreads = 256;  // of a block, in steps 1 to 3
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Step 0: a thread does a whole row, in three passes.

__global__ void thread_a_row(const float* x, float* y, int64_t rows, int64_t columns) {
  const int64_t row = thread_in_grid();
  if (row >= rows) return;
  x += row * columns, y += row * columns;
  float top = -kInfinity, sum = 0;
  for (int64_t c = 0; c < columns; ++c) top = fmaxf(top, COUNTED(x[c]));
  for (int64_t c = 0; c < columns; ++c) sum += expf(COUNTED(x[c]) - top);
  for (int64_t c = 0; c < columns; ++c) COUNTED(y[c]) = expf(COUNTED(x[c]) - top) / sum;
}

void step0(const float* x, float* y, int64_t rows, int64_t columns) {
  launch<thread_a_row>(kDevice, Grid{unsigned(divide_up(rows, kWarp)), kWarp}, x, y, rows, columns);
}

// Steps 1 and 2: a block does a row, and neighbouring threads neighbouring columns. Then the threads put together what
// they have found.

template <class Team> __global__ void block_a_row(const float* x, float* y, int64_t columns) {
  x += blockIdx.x * columns, y += blockIdx.x * columns;
  float top = -kInfinity, sum = 0;
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) top = fmaxf(top, COUNTED(x[c]));
  top = Team::template reduce<Max>(top);
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) sum += expf(COUNTED(x[c]) - top);
  sum = Team::template reduce<Sum>(sum);
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) COUNTED(y[c]) = expf(COUNTED(x[c]) - top) / sum;
}

__device__ float* shared_line() {
  SHARED_ARRAY(float, line, [kThreads]);
  return line;
}

struct Tree {  // step 1: in shared memory; at each level half of the threads combine two values
  template <class R> static __device__ float reduce(float mine) {
    float* const line = shared_line();
    const int me = int(threadIdx.x);
    __syncthreads();  // the previous call may still read the line
    line[me] = mine;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (me < half) line[me] = R::combine(line[me], line[me + half]);
    }
    __syncthreads();
    return line[0];
  }
};

struct Shuffles {  // step 2: within each warp from register to register, then once through shared memory
  template <class R> static __device__ float reduce(float mine) {
    float* const line = shared_line();
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
    mine = warp_reduce<R>(mine);
    __syncthreads();
    if (lane == 0) line[warp] = mine;
    __syncthreads();
    return warp_reduce<R>(line[lane % (kThreads / kWarp)], kThreads / kWarp);
  }
};

template <class Team> void by_blocks(const float* x, float* y, int64_t rows, int64_t columns) {
  launch<block_a_row<Team>>(kDevice, Grid{unsigned(rows), kThreads}, x, y, columns);
}

// Step 3: one pass finds top and sum. A thread keeps both for what it has seen so far, and corrects the sum when the
// top grows.

struct TopAndSum {
  float top, sum;
};

struct Join {
  template <class A> static __device__ A identity() { return {-kInfinity, 0}; }
  template <class A> static __device__ A combine(A a, A b) {
    const float top = fmaxf(a.top, b.top);
    return {top, seen_from(top, a) + seen_from(top, b)};
  }
  // Without exp where it would be 1: that of -inf - -inf is NaN.
  static __device__ float seen_from(float top, TopAndSum a) { return a.top == top ? a.sum : a.sum * expf(a.top - top); }
};

__global__ void one_pass(const float* x, float* y, int64_t columns) {
  x += blockIdx.x * columns, y += blockIdx.x * columns;
  TopAndSum all = Join::identity<TopAndSum>();
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) all = Join::combine(all, TopAndSum{COUNTED(x[c]), 1});
  all = block_reduce<Join>(all);  // as Shuffles::reduce, for values of any size
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) COUNTED(y[c]) = expf(COUNTED(x[c]) - all.top) / all.sum;
}

void step3(const float* x, float* y, int64_t rows, int64_t columns) {
  launch<one_pass>(kDevice, Grid{unsigned(rows), kThreads}, x, y, columns);
}

// Step 4: a thread reads up to four packs of 16 bytes and keeps them in registers. The second pass costs no reads, so
// that top and sum may be found one after the other again, and exp once for each element.

constexpr int kPacks = 4;

__device__ float top_of(float4 v) { return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)); }
__device__ float sum_of(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ float4 exp_from(float top, float4 v) {
  return {expf(v.x - top), expf(v.y - top), expf(v.z - top), expf(v.w - top)};
}
__device__ float4 times(float s, float4 v) { return {s * v.x, s * v.y, s * v.z, s * v.w}; }

__global__ void __launch_bounds__(kRowThreads) in_registers(const float* x, float* y, int64_t columns) {
  const auto* const in = reinterpret_cast<const float4*>(x + blockIdx.x * columns);
  auto* const out = reinterpret_cast<float4*>(y + blockIdx.x * columns);
  const auto pack = [](int k) { return k * int(blockDim.x) + int(threadIdx.x); };
  const int packs = int(columns / 4);
  float4 v[kPacks];
  float top = -kInfinity, sum = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    v[k] = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
    if (pack(k) < packs) v[k] = COUNTED(in[pack(k)]);
    top = fmaxf(top, top_of(v[k]));
  }
  top = block_reduce<Max>(top);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    v[k] = exp_from(top, v[k]);
    sum += sum_of(v[k]);
  }
  sum = block_reduce<Sum>(sum);
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
    if (pack(k) < packs) COUNTED(out[pack(k)]) = times(1 / sum, v[k]);
}

void step4(const float* x, float* y, int64_t rows, int64_t columns) {
  const int64_t threads = divide_up(columns, 4 * kPacks * kWarp) * kWarp;
  if (columns % 4 != 0 || threads > kRowThreads) return step3(x, y, rows, columns);
  launch<in_registers>(kDevice, Grid{unsigned(rows), unsigned(threads)}, x, y, columns);
}

// Step 5: the same by the project's Row (kernels/cuda/rows.cuh), as kernels/cuda/softmax.cu has it. Row chooses the
// threads for a row, from one to a block, and the width of the packs, and knows what to do with rows too long to keep.

struct Softmax {
  using Element = float;
  const float* in[1];
  float* y;
  template <class R> __device__ void operator()(R& row) const {
    const auto [top, sum] = exp_sum<float>(row);
    const float scale = 1 / sum;
    row.write(y, [top = top, scale](int64_t, float x) { return expf(x - top) * scale; });
  }
};

void step5(const float* x, float* y, int64_t rows, int64_t columns) {
  for_each_row(kDevice, Softmax{{x}, y}, y, rows, columns);
}

constexpr Step kSteps[] = {
    {"0 a thread a row", step0},         {"1 a block a row", by_blocks<Tree>},
    {"2 shuffles", by_blocks<Shuffles>}, {"3 one pass", step3},
    {"4 in registers", step4},           {"5 `Row`", step5},
};

}  // namespace

std::span<const Step> softmax_steps() { return kSteps; }

}  // namespace ringtape::ladder
