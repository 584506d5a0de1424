#include "kernels/cuda/gemm/blas_gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/cuda/blas.h"
#include "core/cuda/device.h"
#include "core/device.h"
#include "kernels/arithmetic.h"

namespace ringtape::cuda {
namespace {

// cuBLASLt uses column-major matrices. A row-major c (m, n) is c^T (n, m) there, so it multiplies w^T by a^T. A
// row-major operand is then used as it is, a column-major one transposed.
struct Side {
  bool transposed;
  int64_t rows, columns, leading;  // in memory, column-major
};

// The Side for the transpose of a matrix (rows, columns); nullopt if neither axis is contiguous.
std::optional<Side> side_of(const Operand& x, int64_t rows, int64_t columns) {
  const int64_t row_step = rows == 1 ? columns : x.row_stride, column_step = columns == 1 ? 1 : x.column_stride;
  if (column_step == 1 && row_step >= columns) return Side{false, columns, rows, row_step};
  const int64_t down = rows == 1 ? 1 : x.row_stride, across = columns == 1 ? rows : x.column_stride;
  if (down == 1 && across >= rows) return Side{true, rows, columns, across};
  return {};
}

uint32_t alignment_of(const void* data) {
  return uint32_t(std::min<uint64_t>(256, uint64_t{1} << std::countr_zero(reinterpret_cast<uintptr_t>(data) | 256)));
}

cudaDataType_t cublas_type(DType dtype) {
  switch (dtype) {
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f64: return CUDA_R_64F;
    default: return CUDA_R_32F;
  }
}

bool rounds(DType dtype) { return dtype == DType::f32 && arithmetic().tf32; }

// The properties that determine the algorithm, as a list of numbers.
using Key = std::vector<int64_t>;

// Descriptors and algorithm for one key, cached.
struct GemmPlan {
  bool usable = false;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t w = nullptr, a = nullptr, c = nullptr;
  cublasLtMatmulHeuristicResult_t found{};

  GemmPlan(int index, const BlasProduct& p, const Side& w_side, const Side& a_side);

 private:
  static cublasLtMatrixLayout_t layout(const BlasProduct& p, int64_t rows, int64_t columns, int64_t leading,
                                       int64_t batch_stride);
};

cublasLtMatrixLayout_t GemmPlan::layout(const BlasProduct& p, int64_t rows, int64_t columns, int64_t leading,
                                        int64_t batch_stride) {
  cublasLtMatrixLayout_t out;
  RT_GPU_CHECK(cublasLtMatrixLayoutCreate(&out, cublas_type(p.dtype), uint64_t(rows), uint64_t(columns), leading));
  const int32_t count = int32_t(p.batch);
  RT_GPU_CHECK(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  RT_GPU_CHECK(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
                                                sizeof batch_stride));
  return out;
}

template <class T> void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  RT_GPU_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

GemmPlan::GemmPlan(int index, const BlasProduct& p, const Side& w_side, const Side& a_side) {
  const bool wide = p.dtype == DType::f64;
  const cublasComputeType_t compute = wide              ? CUBLAS_COMPUTE_64F
                                      : rounds(p.dtype) ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                        : CUBLAS_COMPUTE_32F;
  RT_GPU_CHECK(cublasLtMatmulDescCreate(&operation, compute, wide ? CUDA_R_64F : CUDA_R_32F));
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, w_side.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, a_side.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
      p.bias ? (p.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
             : (p.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT));
  if (p.bias) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  w = layout(p, w_side.rows, w_side.columns, w_side.leading, p.w.batch_stride);
  a = layout(p, a_side.rows, a_side.columns, a_side.leading, p.a.batch_stride);
  c = layout(p, p.n, p.m, p.n, p.m * p.n);

  cublasLtMatmulPreference_t preference;
  RT_GPU_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    RT_GPU_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, blas(index).workspace_bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.w.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(blas(index).handle, operation, w, a, c, c, preference, 1, &found, &count);
  RT_GPU_CHECK(cublasLtMatmulPreferenceDestroy(preference));
  usable = status == CUBLAS_STATUS_SUCCESS && count > 0;
}

// Those of one device. A call sets its bias in the plan's descriptor, so the mutex is held until the product is queued.
struct GemmPlans {
  std::mutex mutex;
  std::map<Key, GemmPlan> of;
};
GemmPlans& gemm_plans(int index) {
  static auto* const all = new std::array<GemmPlans, kMaxDevices>;  // the driver may be unloaded before a destructor
  return (*all)[size_t(index)];
}

}  // namespace

bool blas_gemm(Device device, const BlasProduct& p) {
  const std::optional<Side> w = side_of(p.w, p.k, p.n), a = side_of(p.a, p.m, p.k);
  if (!w || !a) return false;
  use(device.index);
  const Key key{int64_t(p.dtype),
                p.batch,
                p.m,
                p.n,
                p.k,
                w->transposed,
                w->leading,
                p.w.batch_stride,
                alignment_of(p.w.data),
                a->transposed,
                a->leading,
                p.a.batch_stride,
                alignment_of(p.a.data),
                alignment_of(p.c),
                p.bias ? alignment_of(p.bias) : 0,
                p.relu,
                rounds(p.dtype)};
  GemmPlans& plans = gemm_plans(device.index);
  const std::lock_guard lock(plans.mutex);
  auto place = plans.of.find(key);
  if (place == plans.of.end()) place = plans.of.emplace(key, GemmPlan(device.index, p, *w, *a)).first;
  const GemmPlan& plan = place->second;
  if (!plan.usable) return false;
  if (p.bias) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  const Blas& lt = blas(device.index);
  const double one[2] = {1, 0};  // alpha and beta, in the compute type
  const float one_f32[2] = {1, 0};
  const bool wide = p.dtype == DType::f64;
  const void *alpha = wide ? static_cast<const void*>(&one[0]) : &one_f32[0],
             *beta = wide ? static_cast<const void*>(&one[1]) : &one_f32[1];
  RT_GPU_CHECK(cublasLtMatmul(lt.handle, plan.operation, alpha, p.w.data, plan.w, p.a.data, plan.a, beta, p.c, plan.c,
                              p.c, plan.c, &plan.found.algo, lt.workspace, lt.workspace_bytes,
                              compute_stream(device.index)));
  return true;
}

}  // namespace ringtape::cuda
