#include "autograd/gradcheck.h"

#include <cmath>

#include "autograd/tape.h"
#include "core/random.h"
#include "kernels/copy.h"

namespace ringtape {
namespace {

using Values = std::vector<double>;

Values read(const Tensor& x) {
  Tensor dense(x.shape(), DType::f64, x.device());
  copy(dense, x);
  const Tensor host = dense.copy_to(Device{});
  return {host.data<double>(), host.data<double>() + host.size()};
}
void write(const Tensor& x, const Values& values) { copy(x, from_host(values, x.shape()).copy_to(x.device())); }

Values random_direction(int64_t n, uint64_t seed, uint64_t stream) {
  Values out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(2.0 * double(uniform_from_bits(philox(seed, stream, uint64_t(i)).x[0])) - 1);
  return out;
}
double dot(const Values& a, const Values& b) {
  double s = 0;
  for (size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
  return s;
}

class Check {
 public:
  Check(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs, const GradcheckOptions& options)
      : f_(f), options_(options) {
    for (const Tensor& x : inputs) {
      const bool real = x.dtype() == DType::f64;
      inputs_.push_back(real ? leaf(x) : x);
      if (real) {
        leaves_.push_back(inputs_.back());
        elements_ += x.size();
      }
    }
  }

  std::string run() {
    const Tensor y = f_(inputs_);
    if (!requires_grad(y)) return elements_ == 0 ? "" : "the result depends on no input";
    if (elements_ <= options_.fast_above) slow(y);
    else
      for (int d = 0; d < options_.directions; ++d) fast(y, uint64_t(d));
    return message_;
  }

 private:
  // (f(x + step u) - f(x - step u)) / (2 step) for a direction u in all leaves.
  Values difference(const std::vector<Values>& x, const std::vector<Values>& u) {
    const NoGrad no_grad;
    double scale = 1;
    for (size_t k = 0; k < x.size(); ++k)
      for (size_t i = 0; i < x[k].size(); ++i)
        if (u[k][i] != 0) scale = std::max(scale, std::fabs(x[k][i]));
    const double step = options_.eps * scale;
    const auto at = [&](double t) {
      for (size_t k = 0; k < x.size(); ++k) {
        Values moved = x[k];
        for (size_t i = 0; i < moved.size(); ++i) moved[i] += t * u[k][i];
        write(leaves_[k], moved);
      }
      return read(f_(inputs_));
    };
    Values up = at(step);
    const Values down = at(-step);
    for (size_t i = 0; i < up.size(); ++i) up[i] = (up[i] - down[i]) / (2 * step);
    for (size_t k = 0; k < x.size(); ++k) write(leaves_[k], x[k]);
    return up;
  }

  std::vector<Values> gradients(const Tensor& y, const Values& v) {
    for (const Tensor& x : leaves_) zero_grad(x);
    Tensor dy = empty_like(y);
    write(dy, v);
    backward(y, dy);
    std::vector<Values> out;
    for (const Tensor& x : leaves_) out.push_back(grad(x).defined() ? read(grad(x)) : Values(size_t(x.size())));
    return out;
  }

  std::vector<Values> leaf_values() {
    std::vector<Values> x;
    for (const Tensor& t : leaves_) x.push_back(read(t));
    return x;
  }

  void slow(const Tensor& y) {
    const size_t outputs = size_t(y.size());
    std::vector<std::vector<Values>> rows;  // [output][leaf][element]
    for (size_t i = 0; i < outputs; ++i) {
      Values v(outputs);
      v[i] = 1;
      rows.push_back(gradients(y, v));
    }
    const std::vector<Values> x = leaf_values();
    for (size_t k = 0; k < x.size(); ++k)
      for (size_t j = 0; j < x[k].size(); ++j) {
        std::vector<Values> u;
        for (const Values& values : x) u.emplace_back(values.size());
        u[k][j] = 1;
        const Values column = difference(x, u);
        for (size_t i = 0; i < outputs; ++i)
          compare(rows[i][k][j], column[i], concat("d output ", i, " / d input ", k, " element ", j));
      }
  }

  void fast(const Tensor& y, uint64_t direction) {
    const Values v = random_direction(y.size(), options_.seed, direction << 8);
    const std::vector<Values> g = gradients(y, v), x = leaf_values();
    if (elements_ == 0) return;  // no direction: differences of a NaN or infinite result are NaN
    std::vector<Values> u;
    double analytic = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      u.push_back(random_direction(int64_t(x[k].size()), options_.seed, (direction << 8) + 1 + k));
      analytic += dot(g[k], u[k]);
    }
    compare(analytic, dot(v, difference(x, u)), concat("direction ", direction));
  }

  void compare(double analytic, double numeric, const std::string& where) {
    const double excess = std::fabs(analytic - numeric) / (options_.atol + options_.rtol * std::fabs(numeric));
    if (excess <= 1 || excess <= worst_) return;  // NaN does not return here
    worst_ = excess;
    message_ = concat(where, ": backward gives ", analytic, ", finite differences ", numeric);
  }

  const std::function<Tensor(const Tensors&)>& f_;
  GradcheckOptions options_;
  Tensors inputs_, leaves_;
  int64_t elements_ = 0;
  double worst_ = 0;
  std::string message_;
};

}  // namespace

std::string gradcheck(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs,
                      const GradcheckOptions& options) {
  return Check(f, inputs, options).run();
}

}  // namespace ringtape
