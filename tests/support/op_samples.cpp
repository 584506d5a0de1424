#include "tests/support/op_samples.h"

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "kernels/copy.h"

namespace ringtape {

std::ostream& operator<<(std::ostream& out, const Op& op) { return out << op.name; }

namespace test {

Result run(const Op& op, const Sample& sample, const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& x : inputs) leaves.push_back(op.differentiable && is_float(x.dtype()) ? leaf(x) : x);
  Result r{sample.call(leaves), {}};
  if (requires_grad(r.y)) {
    const Tensor dy = cast(draw({"", {{r.y.shape()}}, {}}, DType::f64, 99)[0], r.y.dtype());
    backward(r.y, to(dy, r.y.device()));
  }
  for (const Tensor& x : leaves)
    if (requires_grad(x)) r.gradients.push_back(grad(x));
  return r;
}

void expect_close(const Result& a, const Result& b, double rtol, double atol, const std::string& what) {
  expect_close(a.y, b.y, rtol, atol, what + ": value");
  ASSERT_EQ(a.gradients.size(), b.gradients.size()) << what;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].defined(), b.gradients[i].defined()) << what << ": gradient " << i;
    if (a.gradients[i].defined())
      expect_close(a.gradients[i], b.gradients[i], rtol, atol, what + ": gradient " + std::to_string(i));
  }
}

static Tensor host_bytes(const Tensor& x) { return contiguous(x.detach()).copy_to(Device{}); }

bool identical(const Result& a, const Result& b) {
  bool same = same_bytes(host_bytes(a.y), host_bytes(b.y));
  for (size_t i = 0; i < a.gradients.size(); ++i)
    if (a.gradients[i].defined()) same = same && same_bytes(host_bytes(a.gradients[i]), host_bytes(b.gradients[i]));
  return same;
}

Tensor permuted(const Tensor& x) {
  std::vector<int> order;
  for (int i = x.rank() - 1; i >= 0; --i) order.push_back(i);
  return permute(contiguous(permute(x, order)), order);
}

Tensor sliced(const Tensor& x) {
  Shape larger = x.shape(), strides;
  for (int i = 0; i < x.rank(); ++i) larger[i] = 2 * x.shape()[i] + 1;
  const Tensor storage = zeros(larger, x.dtype(), x.device());
  strides = storage.strides();
  int64_t offset = 0;
  for (int i = 0; i < x.rank(); ++i) {
    offset += strides[i];
    strides[i] *= 2;
  }
  const Tensor out = storage.window(x.shape(), strides, x.rank() ? offset : 0);
  copy(out, x);
  return out;
}

Tensor repeated(const Tensor& x) {
  if (x.rank() == 0 || x.shape()[0] == 0) return x;
  return expand(slice(x, 0, 0, 1), x.shape());
}

}  // namespace test
}  // namespace ringtape
