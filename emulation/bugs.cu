// Kernels that are wrong on purpose.
#include <vector>

#include "emulation/cases.cuh"
#include "emulation/correct.cuh"
#include "emulation/hopper_cases.cuh"
#include "emulation/tensor_cases.cuh"

namespace ringtape::emulation_bugs {
namespace {

// Races

__global__ void missing_barrier(const float* x, float* y) {
  SHARED_ARRAY(float, part, [kThreads / 32]);
  const int i = global_index(), lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const float sum = warp_sum(x[i]);
  if (lane == 0) part[warp] = sum;
  float total = 0;
  for (int w = 0; w < kThreads / 32; ++w) total += part[w];  // BUG: missing_barrier
  y[i] = total;
}
__global__ void tile_reuse(const float* x, float* y) {
  SHARED_ARRAY(float, tile, [kThreads]);
  float total = 0;
  for (int b = 0; b < kBlocks; ++b) {
    tile[threadIdx.x] = x[b * kThreads + int(threadIdx.x)];  // BUG: tile_reuse
    __syncthreads();
    total += tile[(threadIdx.x + 64) % kThreads];
  }
  y[global_index()] = total;
}
__global__ void missing_syncwarp(const float* x, float* y) {
  SHARED_ARRAY(float, line, [kThreads]);
  const int i = global_index();
  line[threadIdx.x] = x[i];
  y[i] = line[threadIdx.x ^ 1];  // BUG: missing_syncwarp
}
__global__ void lockstep_tree(const float* x, float* y) {
  SHARED_ARRAY(float, line, [kThreads]);
  volatile float* const s = line;
  s[threadIdx.x] = x[global_index()];
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  for (unsigned d = 16; d > 0; d /= 2)
    if (lane < d) s[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + d];  // BUG: lockstep_tree
  __syncthreads();
  y[global_index()] = s[threadIdx.x / 32 * 32];
}
__global__ void shuffle_as_fence(const float* x, float* y) {
  SHARED_ARRAY(float, line, [kThreads]);
  const int i = global_index();
  line[threadIdx.x] = x[i];
  const float mine = __shfl_sync(kFull, x[i], 0);
  y[i] = line[threadIdx.x ^ 1] + 0 * mine;  // BUG: shuffle_as_fence
}
__global__ void plain_sum_of_block(const float* x, float* y) {
  SHARED_ARRAY(float, total, [1]);
  if (threadIdx.x == 0) total[0] = 0;
  __syncthreads();
  total[0] += x[global_index()];  // BUG: plain_sum_of_block
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = total[0];
}
__global__ void plain_sum_of_blocks(float* x, float*) {
  if (threadIdx.x == 0) x[0] += x[blockIdx.x * kThreads + 1];  // BUG: plain_sum_of_blocks
}
__global__ void same_value(float*, float* y) { y[blockIdx.x] = 1; }  // BUG: same_value
__global__ void neighbour_in_place(float* x, float*) {
  const int i = global_index();
  if (i + 1 < kSize) x[i] = x[i + 1];  // BUG: neighbour_in_place
}
__global__ void atomic_without_barrier(const float* x, float* y) {
  SHARED_ARRAY(float, total, [1]);
  if (threadIdx.x == 0) total[0] = 0;
  __syncthreads();
  atomicAdd(&total[0], x[global_index()]);
  y[global_index()] = total[0];  // BUG: atomic_without_barrier
}

__global__ void sum_by_atomics(float* x, float*) {  // in the order in which they come
  const int i = global_index();
  if (i > 0) atomicAdd(x, x[i] * 0.1f * float(i));
}
void run_sum_by_atomics(float* x, float* y) {  // the first launch tells that it has atomics
  run<sum_by_atomics>(x, y);
  run<sum_by_atomics>(x, y);
}

// Barriers and warps

__global__ void early_return(float* x, float* y) {
  if (threadIdx.x == 5) return;
  __syncthreads();  // BUG: early_return
  y[global_index()] = x[global_index()];
}
__global__ void two_barriers(float* x, float* y) {
  if (threadIdx.x < 64) __syncthreads();  // BUG: two_barriers
  else __syncthreads();
  y[global_index()] = x[global_index()];
}
__global__ void barrier_in_loop(float* x, float* y) {
  for (unsigned i = 0; i <= threadIdx.x / 64; ++i) __syncthreads();  // BUG: barrier_in_loop
  __syncthreads();
  y[global_index()] = x[global_index()];
}
__global__ void half_a_warp_at_barrier(float* x, float* y) {
  if (threadIdx.x % 32 < 16) __syncthreads();  // BUG: half_a_warp_at_barrier
  else __syncwarp();
  y[global_index()] = x[global_index()];
}
__global__ void divergent_shuffle(float* x, float* y) {
  float v = x[global_index()];
  if (threadIdx.x % 32 < 16) v = __shfl_xor_sync(kFull, v, 1);  // BUG: divergent_shuffle
  else v = __shfl_xor_sync(kFull, v, 2);
  y[global_index()] = v;
}
__global__ void absent_lane(float* x, float* y) {               // of 48 threads
  y[threadIdx.x] = __shfl_xor_sync(kFull, x[threadIdx.x], 16);  // BUG: absent_lane
}
__global__ void not_in_mask(float* x, float* y) {
  y[threadIdx.x] = __shfl_xor_sync(0xffff, x[threadIdx.x], 1);  // BUG: not_in_mask
}

// Memory

__global__ void write_past_end(float*, float* y) { y[global_index() + 1] = 1; }      // BUG: write_past_end
__global__ void write_before_begin(float*, float* y) { y[global_index() - 1] = 1; }  // BUG: write_before_begin
__global__ void read_past_end(float* x, float* y) {
  const float4 v = reinterpret_cast<const float4*>(x)[global_index() / 4 + 1];  // BUG: read_past_end
  y[global_index()] = v.x + v.y + v.z + v.w;
}
__global__ void shared_overrun(float* x, float* y) {
  SHARED_ARRAY(float, line, [kThreads]);
  float* const s = line;
  s[threadIdx.x + 1] = x[global_index()];  // BUG: shared_overrun
  y[global_index()] = 1;
}
__global__ void far_shared_overrun(float* x, float* y) {
  SHARED_ARRAY(float, line, [kThreads]);
  SHARED_ARRAY(float, other, [kThreads]);
  other[threadIdx.x] = x[global_index()];
  float* const s = line;
  s[threadIdx.x + 8 * kThreads] = other[threadIdx.x];  // BUG: far_shared_overrun
  y[global_index()] = 1;
}
__global__ void row_overrun(float* x, float* y) {
  SHARED_ARRAY(float, tile, [4][32]);
  const int next = int(threadIdx.x % 32) + 1;
  tile[threadIdx.x / 32 % 3][next] = x[global_index()];  // BUG: row_overrun
  y[global_index()] = 1;
}
__global__ void dynamic_overrun(float* x, float* y) {
  SHARED_DYN(float, line);
  line[threadIdx.x + 1] = x[global_index()];  // BUG: dynamic_overrun
  y[global_index()] = 1;
}
__global__ void freed(float* x, float* y) { y[global_index()] = x[global_index()]; }  // BUG: use_after_free
void run_freed(float* x, float* y) {
  emulation::kill(x);
  run<freed>(x, y);
}
__global__ void not_reached(float* x, float* y) {
  y[global_index()] = x[global_index()];  // BUG: use_before_allocation
}
void run_not_reached(float*, float* y) {
  auto* const early = static_cast<float*>(emulation::reserve(kSize * sizeof(float)));
  run<not_reached>(early, y);
  emulation::release(early);
}
__global__ void reads_host(float* x, float* y) { y[global_index()] = x[global_index()]; }  // BUG: host_pointer
void run_reads_host(float*, float* y) {
  static float* const host = new float[kSize]();
  run<reads_host>(host, y);
}
__global__ void reads_wild(float* x, float* y) { y[global_index()] = x[global_index()]; }  // BUG: wild_pointer
void run_reads_wild(float*, float* y) { run<reads_wild>(reinterpret_cast<float*>(4096), y); }
__global__ void other_local(float* x, float* y) {
  SHARED_ARRAY(float*, pointer, [1]);
  float mine = x[global_index()];
  if (threadIdx.x == 0) pointer[0] = &mine;
  __syncthreads();
  y[global_index()] = *pointer[0];  // BUG: other_local
  __syncthreads();
}
__global__ void uninitialised_shared(float* x, float* y) {
  SHARED_ARRAY(float, line, [kThreads]);
  if (threadIdx.x > 0) line[threadIdx.x] = x[global_index()];
  __syncthreads();
  y[global_index()] = line[threadIdx.x];  // BUG: uninitialised_shared
}
__global__ void uninitialised_sum(float* x, float* y) { atomicAdd(y, x[global_index()]); }  // BUG: uninitialised_sum
__global__ void misaligned(float* x, float* y) {
  const float4 v = *reinterpret_cast<const float4*>(x + global_index() % 64 + 1);  // BUG: misaligned
  y[global_index()] = v.x + v.y + v.z + v.w;
}
__global__ void ldg_of_written(float* x, float* y) {
  const int i = global_index();
  y[i] = x[i];
  y[i] = __ldg(y + i) + 1;  // BUG: ldg_of_written
}
__global__ void unwritten_tail(float* x, float* y) {
  const int i = global_index();
  if (i < kSize - 3) y[i] = x[i];
}

// The rest

__attribute__((noinline)) float deeper(const float* x, int depth) {  // NOLINT: without an end
  volatile float frame[64];
  if (x[0] > 100) return 0;
  frame[depth % 64] = x[depth % kSize];
  return deeper(x, depth + 1) + frame[(depth + 1) % 64];  // BUG: stack_overflow
}
__global__ void overflows(float* x, float* y) { y[global_index()] = deeper(x, 0); }
__global__ void traps(float* x, float* y) {
  if (x[global_index()] > 6) __trap();  // BUG: trap
  y[global_index()] = 1;
}
__global__ void asserts(float* x, float* y) {
  assert(x[global_index()] < 7);  // BUG: assertion
  y[global_index()] = 1;
}
__global__ void multiplies(float* x, float* y) {
  const int i = global_index();
  const int large = (i + 1) * 0x7fffff;  // BUG: integer_overflow
  y[i] = x[i] + float(large);
}
__global__ void shifts(float* x, float* y) {
  const unsigned bit = 1u << threadIdx.x;  // BUG: wide_shift
  y[global_index()] = x[global_index()] + float(bit);
}
__global__ void divides(float* x, float* y) {
  const int zero = int(x[global_index()]) - int(x[global_index()]) % 8;
  y[global_index()] = float(global_index() / zero);  // BUG: division_by_zero
}
__global__ void large_shared(float* x, float* y) {
  SHARED_ARRAY(float, large, [13 * 1024]);  // BUG: large_shared
  large[threadIdx.x] = x[global_index()];
  y[global_index()] = large[threadIdx.x];
}

// Correct; for what is counted of it.

__global__ void counted(const float* x, float* y, int stride, bool uneven) {
  const int lane = int(threadIdx.x);
  __syncthreads();
  float mine = COUNTED(x[lane * stride]);
  if (uneven && lane < 16) mine += 0 * COUNTED(x[lane]);
  COUNTED(y[lane]) = __shfl_sync(kFull, mine, lane);
}

constexpr Case kBugs[] = {
    {"missing_barrier", run<missing_barrier>, total_of_my_block},
    {"tile_reuse", run<tile_reuse>, tile_total},
    {"missing_syncwarp", run<missing_syncwarp>, neighbour},
    {"lockstep_tree", run<lockstep_tree>, warp_total},
    {"shuffle_as_fence", run<shuffle_as_fence>, neighbour},
    {"plain_sum_of_block", run<plain_sum_of_block>, nullptr},
    {"plain_sum_of_blocks", run<plain_sum_of_blocks>, nullptr},
    {"same_value", run<same_value>, nullptr},
    {"neighbour_in_place", run<neighbour_in_place>, nullptr},
    {"atomic_without_barrier", run<atomic_without_barrier>, total_of_my_block},
    {"sum_by_atomics", run_sum_by_atomics, nullptr},
    {"missing_threadfence", run_last_block<false>, grid_total},
    {"early_return", run<early_return>, nullptr},
    {"two_barriers", run<two_barriers>, nullptr},
    {"barrier_in_loop", run<barrier_in_loop>, nullptr},
    {"half_a_warp_at_barrier", run<half_a_warp_at_barrier>, nullptr},
    {"divergent_shuffle", run<divergent_shuffle>, nullptr},
    {"absent_lane", run_48_threads<absent_lane>, nullptr},
    {"not_in_mask", run_one_block<not_in_mask>, nullptr},
    {"write_past_end", run<write_past_end>, nullptr},
    {"write_before_begin", run<write_before_begin>, nullptr},
    {"read_past_end", run<read_past_end>, nullptr},
    {"shared_overrun", run<shared_overrun>, nullptr},
    {"far_shared_overrun", run<far_shared_overrun>, nullptr},
    {"row_overrun", run_one_block<row_overrun>, nullptr},
    {"dynamic_overrun", run_dynamic<dynamic_overrun>, nullptr},
    {"use_after_free", run_freed, nullptr},
    {"use_before_allocation", run_not_reached, nullptr},
    {"host_pointer", run_reads_host, nullptr},
    {"wild_pointer", run_reads_wild, nullptr},
    {"other_local", run<other_local>, nullptr},
    {"uninitialised_shared", run<uninitialised_shared>, x_at},
    {"uninitialised_sum", run<uninitialised_sum>, [](int i) { return i == 0 ? grid_total(0) : NAN; }},
    {"misaligned", run<misaligned>, nullptr},
    {"ldg_of_written", run<ldg_of_written>, nullptr},
    {"unwritten_tail", run<unwritten_tail>, x_at},
    {"stack_overflow", run<overflows>, nullptr},
    {"trap", run<traps>, nullptr},
    {"assertion", run<asserts>, nullptr},
    {"division_by_zero", run<divides>, nullptr},
    {"integer_overflow", run<multiplies>, nullptr},
    {"wide_shift", run<shifts>, nullptr},
    {"large_shared", run<large_shared>, nullptr},
};

}  // namespace

std::span<const Case> joined(std::initializer_list<std::span<const Case>> parts) {
  auto& all = *new std::vector<Case>;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
std::span<const Case> bugs() {
  static const auto all = joined({kBugs, kTensorBugs, kHopperBugs});
  return all;
}
std::span<const Case> correct() {
  static const auto all = joined({kCorrect, kCorrectTensor, kCorrectHopper});
  return all;
}
void run_reads_rows(float* y, int pitch) { start<reads_rows>(reads_rows, 1, 32, size_t(32 * pitch), y, pitch); }
void run_counted(const float* x, float* y, int stride, bool uneven) {
  start<counted>(counted, 1, 32, 0, x, y, stride, uneven);
}

}  // namespace ringtape::emulation_bugs
