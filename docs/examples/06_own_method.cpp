// A self-supervised method of one's own, with settings, loss and name in one file; checkpoints and DDP know it as they
// know SimCLR. Wang and Isola, "Understanding contrastive representation learning through alignment ...", 2020.
// Prints:
//   AlignUniform(weight 1) of resnet18
//   trained for 2 epochs, judged by kNN: yes
#include <ringtape/autograd/ops.h>
#include <ringtape/nn/ssl/method.h>
#include <ringtape/train/settings/run_setup.h>

#include <cstdio>

using namespace ringtape;

struct AlignUniformOptions {
  double weight = 1;  // of uniformity
  nn::HeadOptions projection{64, 32, "hidden"};
};
static void visit(Fields& f, AlignUniformOptions& o) {
  f("uniform-weight", o.weight, {.help = "weight of the uniformity of the outputs", .unit = "X", .range = kReal});
  nn::visit_projection(f, o.projection);
}

class AlignUniform : public nn::Method {
 public:
  AlignUniform(nn::Encoder encoder, const AlignUniformOptions& o) : Method(std::move(encoder)), weight_(o.weight) {}
  Tensors outputs(const Tensors& views) override { return {encode(views[0]), encode(views[1])}; }
  Tensor loss(const Tensors& y) override {
    const Tensor a = l2_normalize(y[0]), b = l2_normalize(y[1]);
    const Tensor distances = 2.0 - 2.0 * matmul(a, transpose(b));  // squared, of all pairs
    return mean(sum(square(a - b), {1})) + weight_ * logsumexp(reshape(-2.0 * distances, {-1}), {0});
  }
  std::string str() const override { return concat("AlignUniform(weight ", weight_, ")"); }

 private:
  double weight_;
};

static const nn::RegisterMethod registered({.name = "align_uniform",
                                            .summary = "views of one image are near, all outputs far from each other",
                                            .settings = AlignUniformOptions{},
                                            .make = nn::make_with_encoder<AlignUniform, AlignUniformOptions>});

int main() {
  TrainOptions options;
  for (const auto& [name, value] : {std::pair{"method", "align_uniform"},
                                    {"model", "resnet18"},
                                    {"width", "4"},
                                    {"train-size", "64"},
                                    {"test-size", "32"},
                                    {"batch-size", "32"},
                                    {"epochs", "2"},
                                    {"warmup-epochs", "0"},
                                    {"knn-k", "5"}})
    set_option(options, name, value, name);  // what --NAME VALUE does
  options.run.json = true;                   // no bars on the terminal
  RunSetup setup(resolve(options));
  Trainer trainer = make_trainer(setup);
  std::printf("%s\n", trainer.learner().facts.title.c_str());
  int judged = 0;
  trainer.fit([&](const Metrics& m) { judged += m.split == "knn" && m.top1.has_value(); });
  std::printf("trained for 2 epochs, judged by kNN: %s\n", judged == 2 ? "yes" : "no");
  return judged == 2 ? 0 : 1;
}
