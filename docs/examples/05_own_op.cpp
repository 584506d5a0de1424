// An operation of one's own: forward, backward, and a record from which checks and benchmarks follow.
// Prints:
//   softsign(3) is 0.75
//   2 samples of its record: gradients agree
#include <ringtape/autograd/create.h>
#include <ringtape/autograd/gradcheck.h>
#include <ringtape/autograd/op.h>
#include <ringtape/autograd/ops.h>
#include <ringtape/autograd/saved.h>
#include <ringtape/autograd/tape.h>

#include <cmath>
#include <cstdio>

using namespace ringtape;

// y = x / (1 + |x|); dx = dy / (1 + |x|)^2. x: f64 on the host.
static Tensor softsign(const Tensor& x0) {
  const Tensor x = contiguous(x0), y = empty_like(x);
  for (int64_t i = 0; i < x.size(); ++i)
    y.data<double>()[i] = x.data<double>()[i] / (1 + std::abs(x.data<double>()[i]));
  return record("softsign", {x}, y, [x = save(x)](const Tensor& dy0) -> Tensors {
    const Tensor dy = contiguous(dy0), dx = empty_like(dy);
    for (int64_t i = 0; i < dx.size(); ++i)
      dx.data<double>()[i] = dy.data<double>()[i] / std::pow(1 + std::abs((*x).data<double>()[i]), 2);
    return {dx};
  });
}

static Tensor call(const Tensors& inputs) { return softsign(inputs[0]); }
static const RegisterOp registered{{
    .name = "softsign",
    .samples = {{"odd", {{{3, 5}, -2, 2}}, call}, {"empty", {{{0, 5}}}, call}},
    .kinks = {0},  // where it has no second derivative
}};

int main() {
  std::printf("softsign(3) is %g\n", softsign(full({1}, 3, DType::f64)).item());
  int agree = 0;
  for (const Op& op : ops()) {
    if (std::string_view(op.name) != "softsign") continue;
    for (const Sample& sample : op.samples) {
      const auto f = [&](const Tensors& in) { return sum(sample.call(in)); };
      agree += gradcheck(f, draw(sample, DType::f64, 1, op.kinks)).empty();
    }
  }
  std::printf("%d samples of its record: gradients agree\n", agree);
  return agree == 2 ? 0 : 1;
}
