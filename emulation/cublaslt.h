#pragma once
#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

// The stand-in for libcublasLt: shared declarations. Products are put on the stream like kernels. Sums are computed in
// f32 (f64 for f64) term by term, which is not the order of a GPU.
struct cublasLtContext {
  int device;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t bias_type = -1;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  int32_t batch = 1;
  int64_t batch_stride = 0;

  bool by_rows() const { return order == CUBLASLT_ORDER_ROW; }
  int64_t lines() const { return int64_t(by_rows() ? rows : columns); }   // one leading dimension apart
  int64_t length() const { return int64_t(by_rows() ? columns : rows); }  // contiguous elements of each
  int64_t at(int64_t row, int64_t column) const { return by_rows() ? row * leading + column : column * leading + row; }
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of A B C D, bytes
};

namespace ringtape::emulation {

inline size_t size_of_type(int type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }
double load_element(const void* data, int64_t i, int type);

// One product, with everything that it needs when the stream reaches it.
struct Product {
  cublasLtMatmulDescOpaque_t op;
  cublasLtMatrixLayoutOpaque_t a, b, c, d;
  double alpha = 1, beta = 0;
  const void *a_data = nullptr, *b_data = nullptr, *c_data = nullptr;
  void* d_data = nullptr;

  // Whether cuBLASLt supports it: matching sizes (else CUBLAS_STATUS_INVALID_VALUE), a valid combination of types (else
  // NOT_SUPPORTED).
  cublasStatus_t supported() const;
  // The checks at the call: promised alignment of A B C D, memory of the device. Reports errors.
  bool valid_pointers(int device, const uint64_t* alignment, const void* workspace, size_t workspace_bytes) const;
  void run() const;

 private:
  int64_t m() const { return int64_t(d.rows); }
  int64_t n() const { return int64_t(d.columns); }
  int64_t k() const { return int64_t(op.trans_a == CUBLAS_OP_N ? a.columns : a.rows); }
  int bias_type() const { return op.bias_type < 0 ? int(d.type) : op.bias_type; }
  bool has_bias() const { return op.epilogue & CUBLASLT_EPILOGUE_BIAS; }
  cublasLtMatrixLayoutOpaque_t bias_layout() const { return {cudaDataType_t(bias_type()), d.rows, 1, int64_t(d.rows)}; }
  bool valid_layouts() const;
  bool same_sizes() const;
  bool known_types() const;
  template <class F> bool each_operand(const char* kind, F holds, bool with_result) const;
  template <class T> void run_one(int64_t batch) const;
};

}  // namespace ringtape::emulation
