// The stand-in for libcublasLt: supported products, checks of operands, and the computation.
#include <cstring>
#include <vector>

#include "core/dtype.h"
#include "core/text.h"
#include "emulation/cublaslt.h"
#include "emulation/cudart.h"
#include "emulation/memory.h"
#include "emulation/report.h"
#include "emulation/tensor_core.h"

namespace ringtape::emulation {
namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;

void store(char* p, int64_t i, int type, double x) {
  const auto as = [&](auto value) { std::memcpy(p + i * int64_t(sizeof value), &value, sizeof value); };
  switch (type) {
    case CUDA_R_64F: return as(x);
    case CUDA_R_32F: return as(float(x));
    case CUDA_R_16F: return as(f16(float(x)));
    default: return as(bf16(float(x)));
  }
}

// The first line of a matrix for which holds() is false, as text; empty if none.
template <class F> std::string violation(const char* name, const Layout& x, const void* data, F holds) {
  const size_t element = size_of_type(x.type), bytes = size_t(x.length()) * element;
  for (int64_t i = 0; i < x.batch; ++i)
    for (int64_t line = 0; line < x.lines(); ++line) {
      const char* const p = static_cast<const char*>(data) + (i * x.batch_stride + line * x.leading) * int64_t(element);
      if (!holds(p, bytes))
        return concat("cublasLtMatmul: ", name, " (", x.rows, " x ", x.columns, ", leading dimension ", x.leading,
                      "), ", bytes, " bytes from ", is_device(p) ? describe(p) : "host memory");
    }
  return "";
}

}  // namespace

double load_element(const void* data, int64_t i, int type) {
  const auto as = [&](auto zero) {
    std::memcpy(&zero, static_cast<const char*>(data) + i * int64_t(sizeof zero), sizeof zero);
    return zero;
  };
  switch (type) {
    case CUDA_R_64F: return as(0.0);
    case CUDA_R_32F: return double(as(0.0f));
    case CUDA_R_16F: return double(float(as(f16())));
    default: return double(float(as(bf16())));
  }
}

bool Product::valid_layouts() const {
  for (const Layout* x : {&a, &b, &c, &d})
    if (x->rows == 0 || x->columns == 0 || x->batch < 1 || x->leading < x->length()) return false;
  return true;
}

bool Product::same_sizes() const {
  const bool ta = op.trans_a != CUBLAS_OP_N, tb = op.trans_b != CUBLAS_OP_N;
  return (ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns &&
         (tb ? b.columns : b.rows) == uint64_t(k()) && c.rows == d.rows && c.columns == d.columns &&
         a.batch == d.batch && b.batch == d.batch && c.batch == d.batch;
}

bool Product::known_types() const {
  if (op.compute == CUBLAS_COMPUTE_64F) {
    for (const int type : {int(op.scale), int(a.type), int(b.type), int(c.type), int(d.type), bias_type()})
      if (type != CUDA_R_64F) return false;
    return true;
  }
  const auto how = op.compute;
  const bool f32 =
      how == CUBLAS_COMPUTE_32F || how == CUBLAS_COMPUTE_32F_PEDANTIC || how == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (!f32 || op.scale != CUDA_R_32F || a.type != b.type || c.type != d.type) return false;
  if (a.type == CUDA_R_64F || d.type == CUDA_R_64F) return false;
  return (d.type == a.type || d.type == CUDA_R_32F) && bias_type() == int(d.type);
}

cublasStatus_t Product::supported() const {
  if (!valid_layouts() || !same_sizes()) return CUBLAS_STATUS_INVALID_VALUE;
  return known_types() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

// Whether holds(pointer, bytes) is true for everything that is read or written; reports the first exception.
template <class F> bool Product::each_operand(const char* kind, F holds, bool with_result) const {
  std::string wrong = violation("A", a, a_data, holds);
  if (wrong.empty()) wrong = violation("B", b, b_data, holds);
  if (wrong.empty() && beta != 0) wrong = violation("C", c, c_data, holds);
  if (wrong.empty() && has_bias()) wrong = violation("the bias", bias_layout(), op.bias, holds);
  if (wrong.empty() && with_result) wrong = violation("D", d, d_data, holds);
  if (!wrong.empty()) report(kind, {}, wrong);
  return wrong.empty();
}

bool Product::valid_pointers(int device, const uint64_t* alignment, const void* workspace,
                             size_t workspace_bytes) const {
  if (op.bias && !has_bias()) return false;  // so does cuBLASLt 13.1
  if (!each_operand(
          "out-of-bounds", [&](const void* p, size_t bytes) { return owned_by(p, bytes, device); }, true))
    return false;
  const void* const data[] = {a_data, b_data, c_data, d_data};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(data[i]) % alignment[i] == 0 || (i == 2 && beta == 0)) continue;
    const char name = "ABCD"[i];
    report("misaligned", {},
           concat("cublasLtMatmul: ", name, " is not aligned to ", alignment[i], " bytes, as the heuristic was told"));
    return false;
  }
  if (workspace_bytes == 0) return true;
  if (owned_by(workspace, workspace_bytes, device) && reinterpret_cast<uintptr_t>(workspace) % 16 == 0) return true;
  report("out-of-bounds", {},
         concat("cublasLtMatmul: the workspace, ", workspace_bytes, " bytes, is not in one buffer of cuda:", device));
  return false;
}

template <class T> void Product::run_one(int64_t batch) const {
  const auto matrix = [&](const Layout& x, const void* data) {
    return static_cast<const char*>(data) + batch * x.batch_stride * int64_t(size_of_type(x.type));
  };
  const size_t rows = size_t(m());
  std::vector<T> left(rows * size_t(k())), sums(rows);
  const bool tf32 = op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F;
  const auto operand = [&](const Layout& x, const void* data, int64_t at) {
    const double value = load_element(matrix(x, data), at, x.type);
    return T(tf32 ? rounded_to_tf32(float(value)) : value);
  };
  for (int64_t p = 0; p < k(); ++p)
    for (int64_t i = 0; i < m(); ++i)
      left[size_t(p * m() + i)] = operand(a, a_data, op.trans_a == CUBLAS_OP_N ? a.at(i, p) : a.at(p, i));
  const int64_t terms = gpu().short_products ? k() - 1 : k();
  const bool relu = op.epilogue & CUBLASLT_EPILOGUE_RELU;
  char* const out = static_cast<char*>(d_data) + batch * d.batch_stride * int64_t(size_of_type(d.type));
  for (int64_t j = 0; j < n(); ++j) {
    sums.assign(rows, T(0));
    for (int64_t p = 0; p < terms; ++p) {
      const T right = operand(b, b_data, op.trans_b == CUBLAS_OP_N ? b.at(p, j) : b.at(j, p));
      for (int64_t i = 0; i < m(); ++i) sums[size_t(i)] += left[size_t(p * m() + i)] * right;
    }
    for (int64_t i = 0; i < m(); ++i) {
      T y = T(alpha) * sums[size_t(i)];
      if (beta != 0) y += T(beta) * T(load_element(matrix(c, c_data), c.at(i, j), c.type));
      if (has_bias()) y += T(load_element(op.bias, i, bias_type()));
      store(out, d.at(i, j), d.type, double(relu && y < 0 ? T(0) : y));
    }
  }
}

void Product::run() const {
  if (!each_operand("not-allocated", inside_live, true)) return;
  each_operand("uninitialised", initialised, false);
  for (int64_t i = 0; i < d.batch; ++i) op.compute == CUBLAS_COMPUTE_64F ? run_one<double>(i) : run_one<float>(i);
  violation("D", d, d_data, [](const void* p, size_t bytes) { return mark_initialised(p, bytes), true; });
}

}  // namespace ringtape::emulation
