// Gradients compared with finite differences: gradcheck() says nothing where they agree, and where they do not, by how
// much. In f64, as differences need the digits.
// Prints:
//   mean of softmax times x: agrees
//   one with a wrong gradient: found
#include <ringtape/autograd/create.h>
#include <ringtape/autograd/gradcheck.h>
#include <ringtape/autograd/ops.h>
#include <ringtape/autograd/saved.h>
#include <ringtape/autograd/tape.h>

#include <cstdio>

using namespace ringtape;

// Twice its gradient is what it should be.
static Tensor wrong_square(const Tensor& x) {
  return record("wrong_square", {x}, x.detach() * x.detach(),
                [x = save(x)](const Tensor& dy) -> Tensors { return {dy * *x}; });
}

int main() {
  manual_seed(1);
  const Tensor x = randn({4, 5}, 0, 1, DType::f64), w = randn({5}, 0, 1, DType::f64);
  const auto f = [](const Tensors& in) { return mean(softmax(in[0]) * in[1]); };
  const std::string difference = gradcheck(f, {x, w});
  std::printf("mean of softmax times x: %s\n", difference.empty() ? "agrees" : difference.c_str());

  const std::string wrong = gradcheck([](const Tensors& in) { return sum(wrong_square(in[0])); }, {x});
  std::printf("one with a wrong gradient: %s\n", wrong.empty() ? "not found" : "found");
  return difference.empty() && !wrong.empty() ? 0 : 1;
}
