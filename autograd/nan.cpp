#include "autograd/nan.h"

#include <cmath>

#include "kernels/copy.h"

namespace ringtape {

void find_nan(const Tensor& x, const std::string& what) {
  if (!x.defined() || !is_float(x.dtype())) return;
  Tensor dense(x.shape(), DType::f64, x.device());
  copy(dense, x);
  const Tensor host = dense.copy_to(Device{});
  const std::span<const double> values = host.span<double>();
  for (size_t i = 0; i < values.size(); ++i)
    RT_CHECK_AS(AutogradError, !std::isnan(values[i]), what, " holds a NaN at element ", i, " of shape ", x.shape());
}

}  // namespace ringtape
