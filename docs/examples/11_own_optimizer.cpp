// An optimizer of one's own. The command line knows it, too: its settings are flags, its state is in checkpoints. Try
// `train --optimizer signs --lr 1e-3`.
// Prints:
//   loss 2.5, then less than 1
#include <ringtape/autograd/create.h>
#include <ringtape/autograd/inplace.h>
#include <ringtape/nn/nn.h>
#include <ringtape/train/cli/cli.h>
#include <ringtape/train/optim/optimizers.h>

#include <cstdio>

using namespace ringtape;

// Steps of one length, in the direction of the signs of an average of gradients.
struct Signs : Optimizer {
  struct Options {
    double momentum = 0.9;
  };
  Signs(FlatParameters& parameters, Options options)
      : Optimizer(parameters), options_(options), average_(new_state()) {}
  std::vector<NamedTensor> state() const override { return {{"average", average_}}; }

 private:
  // For elements [begin, end) of all parameters in a row. step() has multiplied the gradients by what --clip-grad-norm
  // and f16 need; a rule that does it itself, by `factor`, says so in uses_factor().
  void update(int64_t begin, int64_t end, const View& /*factor*/, const Again<double>& lr) override {
    const NoGrad no_grad;
    const Tensor average = state_part(average_, begin, end);
    add_(mul_(average, options_.momentum), parameters_.gradients({begin, end}), 1 - options_.momentum);
    add_(parameters_.values({begin, end}), sign(average), -lr());
  }
  const Options options_;
  const Tensor average_;
};
static void visit(Fields& f, Signs::Options& o) {
  f("signs-momentum", o.momentum, {.help = "decay of the average of gradients", .unit = "X", .range = kFraction});
}
static std::unique_ptr<Optimizer> make_signs(FlatParameters& parameters, const Settings& settings) {
  return std::make_unique<Signs>(parameters, settings.as<Signs::Options>());
}
static const RegisterOptimizer signs({.name = "signs", .settings = Signs::Options{}, .make = make_signs});

int main(int argc, char** argv) {
  if (argc > 1) return cli::main(argc, argv);
  manual_seed(1);
  nn::Linear model(20, 10);
  FlatParameters parameters(model);
  Signs optimizer(parameters, {});
  const Tensor x = randn({100, 20}), y = argmax(slice(x, 1, 0, 10), 1);
  for (int step = 0; step <= 200; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(model(x), y);
    backward(loss);
    optimizer.step(0.01);
    if (step == 0) std::printf("loss %.1f, ", loss.item());
    if (step == 200) std::printf("then %s\n", loss.item() < 1 ? "less than 1" : "not much less");
  }
}
