// A network, an optimizer, batches and a loop: everything a training needs, without the command line.
// Prints:
//   the network has 24674 parameters
//   the loss has fallen: yes
#include <ringtape/autograd/create.h>
#include <ringtape/nn/nn.h>
#include <ringtape/train/data/loader.h>
#include <ringtape/train/data/sets/shapes.h>
#include <ringtape/train/evaluation/metrics.h>
#include <ringtape/train/optim/adam.h>

#include <cstdio>

using namespace ringtape;

int main() {
  manual_seed(1);
  const Splits data = load_shapes({.settings = ShapesOptions{.train_size = 512, .test_size = 64}, .seed = 1});
  nn::Sequential model;
  model.add<nn::Flatten>().add<nn::Linear>(32 * 32 * 3, 8).add<nn::ReLU>().add<nn::Linear>(8, 10);
  std::printf("the network has %d parameters\n", int(nn::count_parameters(model)));
  FlatParameters parameters(model);  // all weights in one buffer, all gradients in another
  Adam optimizer(parameters);

  const Loader loader(data.train, all_samples(data.train), {.batch_size = 64, .shuffle = true, .seed = 1});
  double first = 0, last = 0;
  for (int epoch = 0; epoch < 10; ++epoch) {
    Tally tally;
    for (const Batch& batch : loader.epoch(epoch)) {
      optimizer.zero_grad();
      const Tensor logits = model(batch.x), loss = cross_entropy(logits, batch.y);
      backward(loss);
      optimizer.step(3e-3);
      tally.add(loss, logits, batch.y);
    }
    tally.finish();
    (epoch == 0 ? first : last) = tally.loss();
  }
  std::printf("the loss has fallen: %s\n", last < 0.9 * first ? "yes" : "no");
  return last < 0.9 * first ? 0 : 1;
}
