#include "train/models.h"

#include "nn/nn.h"
#include "train/suggest.h"

namespace ringtape {
namespace {

// With 128 hidden units the network of PyTorch Lightning's MNIST tutorial; named as nn.Sequential names it.
std::unique_ptr<nn::Module> make_mlp(const ModelSpec& spec) {
  auto net = std::make_unique<nn::Sequential>();
  net->add<nn::Flatten>().add<nn::Linear>(spec.image.size(), spec.hidden).add<nn::ReLU>();
  if (spec.dropout > 0) net->add<nn::Dropout>(spec.dropout);
  net->add<nn::Linear>(spec.hidden, spec.classes);
  return net;
}

std::unique_ptr<nn::Module> make_fashion_cnn(const ModelSpec& spec) {
  return std::make_unique<nn::FashionCnn>(spec.image[0], spec.image[1], spec.image[2], spec.classes);
}

template <int64_t... blocks>
std::unique_ptr<nn::Module> make_resnet(const ModelSpec& spec) {
  constexpr int64_t kLarge = 112;  // below that, the ImageNet stem would leave too little of an image
  const bool large = std::min(spec.image[0], spec.image[1]) >= kLarge;
  return std::make_unique<nn::ResNet>(nn::ResNet::Options{
      .blocks = {blocks...}, .in = spec.image[2], .classes = spec.classes, .stem = large ? nn::Stem::imagenet : nn::Stem::cifar});
}

const ModelEntry kModels[] = {
    {"mlp", "one hidden layer: flatten, linear, ReLU, linear (--hidden, --dropout)", make_mlp},
    {"fashion_cnn", "two convolutions and three linear layers, DTU's course network for 28x28 images", make_fashion_cnn},
    {"resnet18", "ResNet-18: 3x3 stem below 112 pixels, above torchvision's 7x7 stem with max-pool", make_resnet<2, 2, 2, 2>},
    {"resnet34", "ResNet-34, with the same stems", make_resnet<3, 4, 6, 3>},
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

}  // namespace ringtape
