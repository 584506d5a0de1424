#include "train/models.h"

#include <algorithm>

#include "nn/nn.h"
#include "train/suggest.h"

namespace ringtape {
namespace {

// With 128 hidden units the network of PyTorch Lightning's MNIST tutorial; named as nn.Sequential names it.
class Mlp : public nn::Sequential, public nn::Classifier {
 public:
  Tensor features(const Tensor& x) override {
    Tensor y = x;
    for (size_t i = 0; i < last; ++i) y = (*this)[i](y);
    return y;
  }
  std::string last_layer() const override { return std::to_string(last); }

  size_t last = 0;  // number of the last layer, if there is one
};

std::unique_ptr<nn::Module> make_mlp(const ModelSpec& spec) {
  auto net = std::make_unique<Mlp>();
  net->add<nn::Flatten>().add<nn::Linear>(spec.image.size(), spec.hidden).add<nn::ReLU>();
  if (spec.dropout > 0) net->add<nn::Dropout>(spec.dropout);
  net->last = net->size();
  if (spec.classes > 0) net->add<nn::Linear>(spec.hidden, spec.classes);
  return net;
}

NamedShape first_of_mlp(const ModelSpec& spec) { return {"1.weight", {spec.hidden, spec.image.size()}}; }

std::string mlp_in_pytorch(const ModelSpec& spec) {
  const std::string dropout = spec.dropout > 0 ? concat("nn.Dropout(", spec.dropout, "), ") : "";
  const std::string first = concat("nn.Linear(", spec.image.size(), ", ", spec.hidden, ")");
  const std::string last = concat("nn.Linear(", spec.hidden, ", ", spec.classes, ")");
  return concat("\nmodel = nn.Sequential(nn.Flatten(), ", first, ", nn.ReLU(), ", dropout, last,
                ")\n# It takes images as (N, H, W, C): model(x.permute(0, 2, 3, 1)).\n");
}

std::unique_ptr<nn::Module> make_fashion_cnn(const ModelSpec& spec) {
  RT_CHECK_AS(UsageError, spec.classes > 0, "--model fashion_cnn: comes with its last layer alone, and is no backbone; try resnet18");
  return std::make_unique<nn::FashionCnn>(spec.image[0], spec.image[1], spec.image[2], spec.classes);
}

// Below 112 pixels the ImageNet stem would leave too little of an image.
nn::Stem stem_for(const ModelSpec& spec) { return std::min(spec.image[0], spec.image[1]) < 112 ? nn::Stem::cifar : nn::Stem::imagenet; }

template <int64_t... blocks>
std::unique_ptr<nn::Module> make_resnet(const ModelSpec& spec) {
  return std::make_unique<nn::ResNet>(
      nn::ResNet::Options{.blocks = {blocks...}, .in = spec.image[2], .classes = spec.classes, .stem = stem_for(spec), .width = spec.width,
                          .stem_padding = spec.stem_padding, .stem_relu = spec.stem_relu});
}

NamedShape first_of_resnet(const ModelSpec& spec) {
  const int64_t kernel = stem_for(spec) == nn::Stem::cifar ? 3 : 7;
  return {"conv1.weight", {spec.width, spec.image[2], kernel, kernel}};
}

template <int depth, int64_t... blocks>
std::string resnet_in_pytorch(const ModelSpec& spec) {
  const int64_t in = spec.image[2], width = spec.width;
  const bool narrow = width != ModelSpec().width, small = stem_for(spec) == nn::Stem::cifar;
  std::string out = concat("from torchvision.models import resnet", depth, "\n");
  if (narrow) out += "from torchvision.models.resnet import BasicBlock\n";
  out += concat("\nmodel = resnet", depth, "(num_classes=", spec.classes, ")\n");
  if (small) out += concat("model.conv1 = nn.Conv2d(", in, ", ", width, ", 3, 1, ", spec.stem_padding, ", bias=False)\n");
  else if (in != 3 || narrow) out += concat("model.conv1 = nn.Conv2d(", in, ", ", width, ", 7, 2, 3, bias=False)\n");
  if (small) out += "model.maxpool = nn.Identity()\n";
  if (!spec.stem_relu) out += "model.relu = nn.Identity()  # the first one alone: blocks have their own\n";
  if (!narrow) return out;
  out += concat("model.bn1, model.inplanes = nn.BatchNorm2d(", width, "), ", width, "\n");
  int stage = 0;
  for (const int64_t count : {blocks...}) {
    ++stage;
    out += concat("model.layer", stage, " = model._make_layer(BasicBlock, ", width << (stage - 1), ", ", count,
                  stage > 1 ? ", stride=2)\n" : ")\n");
  }
  return out + concat("model.fc = nn.Linear(", 8 * width, ", ", spec.classes, ")\n");
}

const ModelEntry kModels[] = {
    {"mlp", "one hidden layer: flatten, linear, ReLU, linear (--hidden, --dropout)", make_mlp, {28, 28, 1}, first_of_mlp, mlp_in_pytorch},
    {"fashion_cnn", "two convolutions and three linear layers, DTU's course network for 28x28 images", make_fashion_cnn, {28, 28, 1}},
    {"resnet18", "ResNet-18: 3x3 stem below 112 pixels, above torchvision's 7x7 stem with max-pool", make_resnet<2, 2, 2, 2>, {32, 32, 3},
     first_of_resnet, resnet_in_pytorch<18, 2, 2, 2, 2>},
    {"resnet34", "ResNet-34, with the same stems", make_resnet<3, 4, 6, 3>, {32, 32, 3}, first_of_resnet,
     resnet_in_pytorch<34, 3, 4, 6, 3>},
};

}  // namespace

std::span<const ModelEntry> models() { return kModels; }

const ModelEntry& find_model(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelEntry& entry : kModels) {
    if (name == entry.name) return entry;
    names.emplace_back(entry.name);
  }
  throw UsageError(unknown("model", name, names));
}

nn::Classifier& classifier(nn::Module& model, const std::string& name) {
  auto* const out = dynamic_cast<nn::Classifier*>(&model);
  RT_CHECK_AS(UsageError, out, "--model ", name, ": has no last linear layer whose input could be its features");
  return *out;
}

}  // namespace ringtape
