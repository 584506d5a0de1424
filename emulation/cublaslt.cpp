// The stand-in for libcublasLt: the interface.
#include "emulation/cublaslt.h"

#include <algorithm>
#include <cstring>

#include "emulation/cudart.h"

using namespace ringtape::emulation;

namespace {

constexpr uint64_t kAlgorithm = 0x52494E4754415045;  // marks an algorithm from the heuristic

template <class F> cublasStatus_t blas_call(F f, const char* name = __builtin_FUNCTION()) {
  cublasStatus_t status = CUBLAS_STATUS_NOT_INITIALIZED;
  const auto body = [&] {
    status = f();
    return cudaSuccess;
  };
  api_call(body, name);
  return status;
}

template <class T> cublasStatus_t take(T& field, const void* from, size_t bytes) {
  if (!from || bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T> cublasStatus_t destroy(T* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return blas_call([&] {
    *handle = new cublasLtContext{current_device()};
    return CUBLAS_STATUS_SUCCESS;
  });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
  *out = new cublasLtMatmulDescOpaque_t{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                                              const void* from, size_t bytes) {
  switch (which) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return take(desc->compute, from, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return take(desc->scale, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(desc->trans_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(desc->trans_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(desc->epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(desc->bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(desc->bias_type, from, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  *out = new cublasLtMatrixLayoutOpaque_t{type, rows, columns, leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                                                const void* from, size_t bytes) {
  switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return take(layout->type, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return take(layout->order, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return take(layout->rows, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return take(layout->columns, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return take(layout->leading, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return take(layout->batch, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return take(layout->batch_stride, from, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return destroy(preference); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void* from,
                                                    size_t bytes) {
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return take(preference->workspace, from, bytes);
  const int operand = which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  return operand >= 0 && operand < 4 ? take(preference->alignment[operand], from, bytes) : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t found[], int* count) {
  *count = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{.op = *desc, .a = *a, .b = *b, .c = *c, .d = *d};
  if (const cublasStatus_t status = product.supported()) return status;
  for (int i = 0; i < 4; ++i)  // no real algorithm accepts alignments below the size of an element
    if (preference->alignment[i] < size_of_type(i < 2 ? a->type : d->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  found[0] = {};
  found[0].algo.data[0] = kAlgorithm;
  for (int i = 0; i < 4; ++i) found[0].algo.data[1 + i] = preference->alignment[i];
  found[0].workspaceSize = size_t(std::min<uint64_t>(preference->workspace, 4096));
  found[0].algo.data[5] = found[0].workspaceSize;
  found[0].state = CUBLAS_STATUS_SUCCESS;
  found[0].wavesCount = 1;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b, const void* beta,
                              const void* c_data, cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t handle_of_stream) {
  return blas_call([&] {
    const auto stream = stream_of(handle_of_stream);
    if (!stream || !handle || stream->device != handle->device || !alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
    if (current_device() != handle->device) return CUBLAS_STATUS_EXECUTION_FAILED;
    Product product{.op = *desc, .a = *a, .b = *b, .c = *c, .d = *d};
    if (const cublasStatus_t status = product.supported()) return status;
    product.alpha = load_element(alpha, 0, desc->scale);
    product.beta = load_element(beta, 0, desc->scale);
    product.a_data = a_data;
    product.b_data = b_data;
    product.c_data = c_data;
    product.d_data = d_data;
    const uint64_t none[8] = {kAlgorithm, 1, 1, 1, 1, 0};
    const uint64_t* const chosen = algo ? algo->data : none;
    if (chosen[0] != kAlgorithm || chosen[5] > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
    if (!product.valid_pointers(stream->device, chosen + 1, workspace, size_t(chosen[5])))
      return CUBLAS_STATUS_INVALID_VALUE;
    put(*stream, [product] { product.run(); });
    return CUBLAS_STATUS_SUCCESS;
  });
}

size_t cublasLtGetVersion(void) { return 0; }  // of no library
const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the function failed to launch on the GPU";
    default: return "an internal operation failed";
  }
}

}  // extern "C"
