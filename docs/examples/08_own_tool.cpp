// The whole command line with a network, a data set and a callback of one's own: they are in --help, `list`, files of
// settings and `compare`. So can transforms of images, optimizers, schedules and methods. Try `train --data stripes`.
// With the arguments: list callbacks
// Prints:
//   callbacks:
//     watch  prints the worst loss of every --watch-steps steps
#include <ringtape/core/random.h>
#include <ringtape/nn/nn.h>
#include <ringtape/train/cli/cli.h>
#include <ringtape/train/data/dataset.h>
#include <ringtape/train/loop/callback.h>
#include <ringtape/train/model/models.h>

#include <cstdio>

using namespace ringtape;

static std::unique_ptr<nn::Module> make_narrow(const ModelSpec& spec) {
  auto out = std::make_unique<nn::Sequential>();
  out->add<nn::Flatten>().add<nn::Linear>(spec.image.size(), 12).add<nn::Tanh>().add<nn::Linear>(12, spec.classes);
  return out;
}
static const RegisterModel narrow({.name = "narrow",
                                   .summary = "12 hidden units with tanh",
                                   .make = make_narrow,
                                   .features = [](const ModelSpec&) -> int64_t { return 12; },
                                   .image = {8, 8, 1}});

static Dataset stripes(int64_t n, uint64_t seed) {  // vertical or horizontal ones, under noise
  Dataset out{.name = "stripes",
              .source = "generated",
              .images = Tensor({n, 8, 8, 1}, DType::u8),
              .labels = Tensor({n}, DType::i64),
              .classes = 2,
              .mean = {0.5},
              .deviation = {0.3},
              .class_names = {"standing", "lying"}};
  for (int64_t i = 0; i < n * 64; ++i) {
    const int64_t lies = out.labels.data<int64_t>()[i / 64] = i / 64 % 2, line = lies ? i / 8 : i;
    out.images.data<uint8_t>()[i] = uint8_t(line % 2 * 127 + philox(seed, 0, uint64_t(i)).x[0] % 128);
  }
  return out;
}
static const RegisterDataset data({.name = "stripes",
                                   .summary = "8x8 stripes, generated",
                                   .generated = true,
                                   .val_size = 20,
                                   .model = "narrow",
                                   .load = [](const DataRequest& request) {
                                     return Splits{stripes(200, request.seed), stripes(50, request.seed + 1)};
                                   }});

struct WatchOptions {
  int64_t steps = 5;
};
static void visit(Fields& f, WatchOptions& o) {
  f("watch-steps", o.steps, {.help = "steps between lines of the callback", .unit = "N", .range = kPositive});
}
struct Watch : Callback {
  explicit Watch(const WatchOptions& o) : every(o.steps) {}
  void after_step(int64_t step, const Step::Result& result) override {
    worst = std::max(worst, result.loss.item());
    if (step % every == 0) std::printf("watch: step %d, worst loss %.3f\n", int(step), std::exchange(worst, 0));
  }
  int64_t every;
  double worst = 0;
};
static const RegisterCallback watch({.name = "watch",
                                     .summary = "prints the worst loss of every --watch-steps steps",
                                     .settings = WatchOptions{},
                                     .make = make_callback<Watch, WatchOptions>});

int main(int argc, char** argv) { return cli::main(argc, argv); }
