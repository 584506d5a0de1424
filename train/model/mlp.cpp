#include "nn/nn.h"
#include "train/model/families.h"

namespace ringtape {
namespace {

struct MlpOptions {
  int64_t hidden = 128;
  double dropout = 0;
};
void visit(Fields& f, MlpOptions& o) {
  f("hidden", o.hidden,
    {.help = "width of the hidden layer", .unit = "N", .range = kPositive, .scope = FieldScope::weights});
  f("dropout", o.dropout,
    {.help = "probability of zeroing a hidden unit in training",
     .unit = "P",
     .range = kFraction,
     .scope = FieldScope::weights});
}
const MlpOptions& mlp(const ModelSpec& spec) { return spec.settings.as<MlpOptions>(); }

// With 128 hidden units the network of PyTorch Lightning's MNIST tutorial; named as nn.Sequential names it.
class Mlp : public nn::Sequential, public nn::Classifier {
 public:
  Tensor features(const Tensor& x) override {
    Tensor y = x;
    for (size_t i = 0; i < last; ++i) y = (*this)[i](y);
    return y;
  }
  std::string last_layer() const override { return std::to_string(last); }

  size_t last = 0;  // index of the last layer, if there is one
};

std::unique_ptr<nn::Module> make_mlp(const ModelSpec& spec) {
  const MlpOptions& o = mlp(spec);
  auto net = std::make_unique<Mlp>();
  net->add<nn::Flatten>().add<nn::Linear>(spec.image.size(), o.hidden).add<nn::ReLU>();
  if (o.dropout > 0) net->add<nn::Dropout>(o.dropout);
  net->last = net->size();
  if (spec.classes > 0) net->add<nn::Linear>(o.hidden, spec.classes);
  return net;
}

NamedShape first_of_mlp(const ModelSpec& spec) { return {"1.weight", {mlp(spec).hidden, spec.image.size()}}; }

std::string mlp_in_pytorch(const ModelSpec& spec) {
  const MlpOptions& o = mlp(spec);
  const std::string dropout = o.dropout > 0 ? concat("nn.Dropout(", o.dropout, "), ") : "";
  const std::string first = concat("nn.Linear(", spec.image.size(), ", ", o.hidden, ")");
  const std::string last = concat("nn.Linear(", o.hidden, ", ", spec.classes, ")");
  const bool planes = spec.image[2] > 1;  // in another order than pixels
  return concat(
      "\nmodel = nn.Sequential(nn.Flatten(), ", first, ", nn.ReLU(), ", dropout, last, ")\n",
      planes ? "model.register_forward_pre_hook(lambda _, x: x[0].permute(0, 2, 3, 1))  # to (N, H, W, C)\n" : "");
}

}  // namespace

ModelEntry mlp_model() {
  return {.name = "mlp",
          .summary = "one hidden layer: flatten, linear, ReLU, linear",
          .settings = MlpOptions{},
          .make = make_mlp,
          .features = [](const ModelSpec& spec) { return mlp(spec).hidden; },
          .image = {28, 28, 1},
          .first = first_of_mlp,
          .pytorch = mlp_in_pytorch,
          .repeats = true};
}

}  // namespace ringtape
