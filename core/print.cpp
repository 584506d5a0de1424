// Tensor::str prints values like NumPy.
#include <cstdio>

#include "core/runtime.h"
#include "core/tensor.h"

namespace ringtape {
namespace {

constexpr int64_t kSummarizeAbove = 1000;  // elements
constexpr int64_t kEdge = 3;               // values shown at each end of a summarised axis

std::string number(double x, DType dtype) {
  if (dtype == DType::b8) return x != 0 ? "true" : "false";
  char out[32];
  std::snprintf(out, sizeof out, is_float(dtype) ? "%.5g" : "%.0f", x);
  return out;
}

double element(const Tensor& x, int64_t offset) {
  return dispatch(x.dtype(),
                  [&]<class T>() { return double(compute_t<T>(static_cast<const T*>(View(x).data)[offset])); });
}

void print_axis(std::string& out, const Tensor& x, int axis, int64_t offset, bool summarize) {
  if (axis == x.rank()) {
    out += number(element(x, offset), x.dtype());
    return;
  }
  const int64_t n = x.shape()[axis];
  const std::string separator = axis + 1 == x.rank() ? ", " : ",\n" + std::string(size_t(axis) + 8, ' ');
  out += '[';
  for (int64_t i = 0; i < n; ++i) {
    if (i) out += separator;
    if (summarize && n > 2 * kEdge && i == kEdge) {
      out += "..." + separator;
      i = n - kEdge;
    }
    print_axis(out, x, axis + 1, offset + i * x.strides()[axis], summarize);
  }
  out += ']';
}

// x itself, or a copy in host memory with the same strides.
Tensor on_host(const Tensor& x) {
  if (x.device().type == DeviceType::cpu) return x;
  const Storage& storage = *x.storage();
  const int64_t size = int64_t(size_of(x.dtype()));
  Tensor whole({int64_t(storage.bytes()) / size}, x.dtype());
  runtime(x.device()).copy(View(whole).data, Device{}, storage.data(), x.device(), size_t(whole.size() * size));
  return whole.window(x.shape(), x.strides(), (View(x).as<char>() - static_cast<char*>(storage.data())) / size);
}

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "tensor(undefined)";
  std::string out = "tensor(";
  print_axis(out, on_host(*this), 0, 0, size() > kSummarizeAbove);
  return out + concat(", shape=", shape_, ", ", dtype_, ", ", device(), ")");
}

}  // namespace ringtape
