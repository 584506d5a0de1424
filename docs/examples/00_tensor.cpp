// Tensors: values with a shape, a type and a device. Views share memory, and backward() gives gradients.
// Prints:
//   x + row: (2, 3) f32 on cpu:0, sum 42
//   the view has changed x: 10
//   d(sum of squares)/dx of 3 is 6
#include <ringtape/autograd/create.h>
#include <ringtape/autograd/ops.h>
#include <ringtape/autograd/tape.h>

#include <cstdio>
#include <vector>

using namespace ringtape;

int main() {
  const Tensor x = from_host(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor row = arange(3, DType::f32);  // 0, 1, 2
  const Tensor y = x + row + 2.5;            // broadcasts the row and the number
  std::printf("x + row: (%d, %d) %s on %s, sum %g\n", int(y.dim(0)), int(y.dim(1)), text(y.dtype()).c_str(),
              text(y.device()).c_str(), sum(y).item());

  const Tensor column = slice(x, 1, 0, 1);  // a view: column 0 of x, no copy
  *column.data<float>() = 10;
  std::printf("the view has changed x: %g\n", x.span<float>()[0]);

  const Tensor leaf_x = leaf(x.detach());  // from here on operations are recorded
  backward(sum(square(leaf_x)));
  std::printf("d(sum of squares)/dx of %g is %g\n", x.span<float>()[2], grad(leaf_x).span<float>()[2]);
}
