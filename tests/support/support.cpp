#include "tests/support/support.h"

#include <cmath>
#include <cstring>

#include "kernels/copy.h"

namespace ringtape::test {

std::vector<double> values(const Tensor& x) {
  Tensor dense(x.shape(), DType::f64, x.device());
  copy(dense, x);
  const Tensor host = dense.copy_to(Device{});
  return {host.data<double>(), host.data<double>() + host.size()};
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(View(a).data, View(b).data, size_t(a.size()) * size_of(a.dtype())) == 0;
}

void expect_close(const Tensor& a, const Tensor& b, double rtol, double atol, const std::string& what) {
  ASSERT_EQ(a.shape().str(), b.shape().str()) << what;
  const std::vector<double> x = values(a), y = values(b);
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (x[i] == y[i]) continue;
    const double excess = std::fabs(x[i] - y[i]) / (atol + rtol * std::fabs(y[i]));
    if (!(excess <= worst)) worst = excess, at = i;
  }
  EXPECT_LE(worst, 1) << what << ": element " << at << " of " << a.shape().str() << " is " << x[at] << ", expected "
                      << y[at];
}

}  // namespace ringtape::test
