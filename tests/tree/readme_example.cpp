#include <cstdio>

#include "autograd/create.h"
#include "nn/nn.h"
#include "train/optim/adam.h"

using namespace ringtape;

int main() {
  manual_seed(1);
  nn::Sequential model;
  model.add<nn::Linear>(2, 16).add<nn::Tanh>().add<nn::Linear>(16, 1);
  FlatParameters parameters(model);
  Adam optimizer(parameters);
  const Tensor x = rand({256, 2}, -1, 1), y = slice(x, 1, 0, 1) * slice(x, 1, 1, 2);  // to learn: a product
  for (int step = 0; step <= 1000; ++step) {
    optimizer.zero_grad();
    const Tensor loss = mean(square(model(x) - y));
    backward(loss);
    optimizer.step(0.01);
    if (step % 250 == 0) std::printf("step %4d  loss %.6f\n", step, loss.item());
  }
}
