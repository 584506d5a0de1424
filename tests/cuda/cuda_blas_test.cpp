// cuBLASLt as core/cuda offers it, against plain sums: transposes, batches, leading dimensions, epilogues, types.
#include <cmath>
#include <vector>

#include "core/cuda/blas.h"
#include "core/cuda/device.h"
#include "core/tensor.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::values;

class CudaBlas : public testing::Test {
 protected:
  void SetUp() override {
#if defined(RINGTAPE_EMULATION_BUILD)
    emulation::set_gpu({.devices = 2, .memory_bytes = size_t{256} << 20});
#endif
    RT_NEEDS_CUDA();
  }
};

struct Case {
  DType dtype = DType::f32, result = DType::f32;
  int64_t m = 5, n = 7, k = 9, batch = 1;
  bool transpose_a = false, transpose_b = false;
  int64_t padding = 0;  // of the leading dimensions
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  float alpha = 1, beta = 0;
};

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::f64    ? CUDA_R_64F
         : dtype == DType::f16  ? CUDA_R_16F
         : dtype == DType::bf16 ? CUDA_R_16BF
                                : CUDA_R_32F;
}

// A matrix by columns on the device, and its elements.
struct Matrix {
  int64_t rows, columns, leading, batch;
  Tensor device;
  std::vector<double> host;
  cublasLtMatrixLayout_t layout = nullptr;

  Matrix(int64_t rows_, int64_t columns_, const Case& c, DType dtype, uint64_t seed)
      : rows(rows_), columns(columns_), leading(rows_ + c.padding), batch(c.batch) {
    const Tensor x({batch * leading * columns}, dtype);
    dispatch_float(dtype, [&]<class T>() {
      for (int64_t i = 0; i < x.size(); ++i) x.data<T>()[i] = T(float((i * 37 + int64_t(seed) * 11) % 17 - 8) / 8);
    });
    host = values(x);
    device = x.copy_to(kCuda);
    RT_GPU_CHECK(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), uint64_t(rows), uint64_t(columns), leading));
    const int32_t count = int32_t(batch);
    const int64_t stride = leading * columns;
    RT_GPU_CHECK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    RT_GPU_CHECK(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
  }
  ~Matrix() { cublasLtMatrixLayoutDestroy(layout); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  double at(int64_t b, int64_t row, int64_t column) const {
    return host[size_t((b * columns + column) * leading + row)];
  }
  void* data() const { return View(device).data; }
};

template <class T> void set(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t what, T value) {
  RT_GPU_CHECK(cublasLtMatmulDescSetAttribute(op, what, &value, sizeof value));
}

struct Operation {
  cublasLtMatmulDesc_t op = nullptr;
  Operation(const Case& c, const void* bias) {
    const bool wide = c.dtype == DType::f64;
    RT_GPU_CHECK(
        cublasLtMatmulDescCreate(&op, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, wide ? CUDA_R_64F : CUDA_R_32F));
    set(op, CUBLASLT_MATMUL_DESC_TRANSA, c.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(op, CUBLASLT_MATMUL_DESC_TRANSB, c.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(op, CUBLASLT_MATMUL_DESC_EPILOGUE, c.epilogue);
    if (c.epilogue & CUBLASLT_EPILOGUE_BIAS) set(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  ~Operation() { cublasLtMatmulDescDestroy(op); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
};

// How many algorithms there are, with the first of them.
int find_algorithm(const Operation& o, const Matrix& a, const Matrix& b, const Matrix& d,
                   cublasLtMatmulHeuristicResult_t& found) {
  cublasLtMatmulPreference_t preference;
  RT_GPU_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  const size_t workspace = cuda::blas(0).workspace_bytes;
  RT_GPU_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                    sizeof workspace));
  int count = 0;
  const cublasLtHandle_t handle = cuda::blas(0).handle;
  const auto status = cublasLtMatmulAlgoGetHeuristic(handle, o.op, a.layout, b.layout, d.layout, d.layout, preference,
                                                     1, &found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  return status == CUBLAS_STATUS_SUCCESS ? count : 0;
}

double tolerance_of(DType dtype) {
  return dtype == DType::bf16 ? 1.0 / 128 : dtype == DType::f16 ? 1.0 / 1024 : dtype == DType::f32 ? 1e-5 : 1e-13;
}

// `got` is what has become of d.
void expect_equals(const Case& c, const Matrix& a, const Matrix& b, const Matrix& d, const Matrix& bias,
                   const std::vector<double>& got) {
  for (int64_t i = 0; i < c.batch; ++i)
    for (int64_t column = 0; column < d.columns; ++column)
      for (int64_t row = 0; row < d.leading; ++row) {
        const size_t place = size_t((i * d.columns + column) * d.leading + row);
        double want = c.beta * d.host[place];
        for (int64_t p = 0; row < c.m && p < c.k; ++p)
          want += c.alpha * (c.transpose_a ? a.at(i, p, row) : a.at(i, row, p)) *
                  (c.transpose_b ? b.at(i, column, p) : b.at(i, p, column));
        if (row < c.m && (c.epilogue & CUBLASLT_EPILOGUE_BIAS)) want += bias.at(0, row, 0);
        if (c.epilogue & CUBLASLT_EPILOGUE_RELU) want = std::fmax(want, 0);
        if (row >= c.m) want = d.host[place];  // what lies between columns stays
        ASSERT_NEAR(got[place], want, tolerance_of(c.result) * (1 + std::fabs(want)))
            << i << ' ' << row << ' ' << column;
      }
}

void expect_product(const Case& c) {
  const Matrix a(c.transpose_a ? c.k : c.m, c.transpose_a ? c.m : c.k, c, c.dtype, 1);
  const Matrix b(c.transpose_b ? c.n : c.k, c.transpose_b ? c.k : c.n, c, c.dtype, 2);
  const Matrix d(c.m, c.n, c, c.result, 3), bias(c.m, 1, Case{}, c.result, 4);
  const Operation o(c, bias.data());
  cublasLtMatmulHeuristicResult_t found{};
  ASSERT_EQ(find_algorithm(o, a, b, d, found), 1);
  const double wide[] = {c.alpha, c.beta};
  const float narrow[] = {c.alpha, c.beta};
  const bool f64 = c.dtype == DType::f64;
  const void *alpha = f64 ? static_cast<const void*>(wide) : narrow,
             *beta = f64 ? static_cast<const void*>(wide + 1) : narrow + 1;
  const cuda::Blas& lt = cuda::blas(0);
  RT_GPU_CHECK(cublasLtMatmul(lt.handle, o.op, alpha, a.data(), a.layout, b.data(), b.layout, beta, d.data(), d.layout,
                              d.data(), d.layout, &found.algo, lt.workspace, lt.workspace_bytes,
                              cuda::compute_stream(0)));
  expect_equals(c, a, b, d, bias, values(d.device.copy_to({})));
}

TEST_F(CudaBlas, IsMadeOnce) {
  const cuda::Blas& first = cuda::blas(0);
  EXPECT_EQ(&first, &cuda::blas(0));
  EXPECT_NE(first.workspace, nullptr);
  EXPECT_GE(first.workspace_bytes, size_t{1} << 20);
}

TEST_F(CudaBlas, Transposes) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const int64_t padding : {0, 3}) {
          SCOPED_TRACE(concat(dtype, " transposes ", ta, " ", tb, " padding ", padding));
          expect_product({.dtype = dtype, .result = dtype, .transpose_a = ta, .transpose_b = tb, .padding = padding});
        }
}

TEST_F(CudaBlas, Batches) {
  for (const bool ta : {false, true})
    expect_product({.m = 8, .n = 4, .k = 3, .batch = 6, .transpose_a = ta, .padding = 1});
}

TEST_F(CudaBlas, Epilogues) {
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS})
    for (const int64_t batch : {1, 3}) {
      SCOPED_TRACE(concat("epilogue ", int(epilogue), " batch ", batch));
      expect_product({.m = 8, .n = 16, .k = 8, .batch = batch, .epilogue = epilogue});
    }
}

TEST_F(CudaBlas, ScalesAndAdds) { expect_product({.alpha = 0.5f, .beta = -2}); }

TEST_F(CudaBlas, HalfPrecision) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const DType result : {dtype, DType::f32}) {
      SCOPED_TRACE(concat(dtype, " to ", result));
      expect_product({.dtype = dtype, .result = result, .m = 16, .n = 8, .k = 24, .transpose_a = true});
      expect_product(
          {.dtype = dtype, .result = result, .m = 16, .n = 8, .k = 24, .epilogue = CUBLASLT_EPILOGUE_RELU_BIAS});
    }
}

TEST_F(CudaBlas, AFailureNamesTheCall) {
  const std::string message = test::message_of<DeviceError>([] { RT_GPU_CHECK(CUBLAS_STATUS_NOT_SUPPORTED); });
  EXPECT_NE(message.find("CUBLAS_STATUS_NOT_SUPPORTED failed: CUBLAS_STATUS_NOT_SUPPORTED: "), std::string::npos)
      << message;
  EXPECT_NE(message.find("cuda_blas_test.cpp:"), std::string::npos) << message;
  EXPECT_THROW(RT_GPU_CHECK(CUBLAS_STATUS_ALLOC_FAILED), OutOfMemory);
}

#if defined(RINGTAPE_EMULATION_BUILD)

// What the stand-in refuses, or reports, as the library would refuse it, or do something undefined.
class EmulatedBlas : public CudaBlas {
 protected:
  cublasStatus_t product(const void* a_data, const Operation& o, const Matrix& a, const Matrix& b, const Matrix& d,
                         void* workspace = cuda::blas(0).workspace) {
    const float one = 1, zero = 0;
    cublasLtMatmulHeuristicResult_t found{};
    if (find_algorithm(o, a, b, d, found) == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    const cuda::Blas& lt = cuda::blas(0);
    return cublasLtMatmul(lt.handle, o.op, &one, a_data, a.layout, b.data(), b.layout, &zero, d.data(), d.layout,
                          d.data(), d.layout, &found.algo, workspace, lt.workspace_bytes, cuda::compute_stream(0));
  }
  void expect_reported(const std::string& kind) {
    cudaStreamSynchronize(cuda::compute_stream(0));
    ASSERT_EQ(emulation::reports().size(), 1u);
    EXPECT_EQ(emulation::reports()[0].kind, kind) << emulation::reports()[0].text;
    emulation::clear_reports();
  }
};

TEST_F(EmulatedBlas, RefusesWhatDoesNotFit) {
  const Case c{}, mixed{.dtype = DType::f16};
  const Matrix a(5, 9, c, DType::f32, 1), b(9, 7, c, DType::f32, 2), d(5, 7, c, DType::f32, 3),
      short_d(5, 6, c, DType::f32, 3);
  const Matrix half(5, 9, mixed, DType::f16, 1);
  const Operation o(c, nullptr);
  cublasLtMatmulHeuristicResult_t found{};
  EXPECT_EQ(find_algorithm(o, a, b, d, found), 1);
  EXPECT_EQ(find_algorithm(o, a, b, short_d, found), 0);
  EXPECT_EQ(find_algorithm(o, half, b, d, found), 0);
  EXPECT_EQ(find_algorithm(o, a, b, half, found), 0);
}

TEST_F(EmulatedBlas, ReportsWrongPointers) {
  const Case c{.m = 64, .n = 4, .k = 4};
  const Matrix a(64, 4, c, DType::f32, 1), b(4, 4, c, DType::f32, 2), d(64, 4, c, DType::f32, 3);
  const Operation plain(c, nullptr), with_bias({.epilogue = CUBLASLT_EPILOGUE_BIAS}, nullptr);
  EXPECT_EQ(product(static_cast<char*>(a.data()) + 256, plain, a, b, d), CUBLAS_STATUS_INVALID_VALUE);
  expect_reported("out-of-bounds");
  EXPECT_EQ(product(a.host.data(), plain, a, b, d), CUBLAS_STATUS_INVALID_VALUE);
  expect_reported("out-of-bounds");
  EXPECT_EQ(product(a.data(), with_bias, a, b, d), CUBLAS_STATUS_INVALID_VALUE);
  expect_reported("out-of-bounds");
  EXPECT_EQ(product(a.data(), plain, a, b, d, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  expect_reported("out-of-bounds");
  const Tensor longer({65 * 4}, DType::f32, kCuda);
  EXPECT_EQ(product(static_cast<char*>(View(longer).data) + 4, plain, a, b, d), CUBLAS_STATUS_INVALID_VALUE);
  expect_reported("misaligned");
  if (emulation::checked()) {
    EXPECT_EQ(product(View(longer).data, plain, a, b, d), CUBLAS_STATUS_SUCCESS);
    expect_reported("uninitialised");
  }
}

#endif

}  // namespace
}  // namespace ringtape
