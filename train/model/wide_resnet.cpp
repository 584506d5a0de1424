#include "nn/nn.h"
#include "train/model/families.h"

namespace ringtape {
namespace {

struct WideResNetOptions {
  int64_t depth = 28;
  int64_t widen = 10;
  double dropout = 0;
};
void visit(Fields& f, WideResNetOptions& o) {
  f("depth", o.depth,
    {.help = "layers: 6 n + 4 with n blocks in each of the three stages",
     .unit = "N",
     .range = {10, 1000},
     .scope = FieldScope::weights});
  f("widen", o.widen,
    {.help = "times 16 channels of the first stage; each later stage doubles them",
     .unit = "K",
     .range = {1, 64},
     .scope = FieldScope::weights});
  f("dropout", o.dropout,
    {.help = "probability of zeroing an element between the convolutions of a block, in training",
     .unit = "P",
     .range = kFraction,
     .scope = FieldScope::weights});
}
const WideResNetOptions& wide_resnet(const ModelSpec& spec) { return spec.settings.as<WideResNetOptions>(); }

std::unique_ptr<nn::Module> make_wide_resnet(const ModelSpec& spec) {
  const WideResNetOptions& o = wide_resnet(spec);
  return std::make_unique<nn::WideResNet>(nn::WideResNet::Options{
      .depth = o.depth, .widen = o.widen, .dropout = o.dropout, .in = spec.image[2], .classes = spec.classes});
}

// Its last block shows the depth by its name and the width by its shape.
NamedShape first_of_wide_resnet(const ModelSpec& spec) {
  const int64_t channels = 64 * wide_resnet(spec).widen;
  return {concat("block3.layer.", (wide_resnet(spec).depth - 4) / 6 - 1, ".conv2.weight"), {channels, channels, 3, 3}};
}

std::string wide_resnet_in_pytorch(const ModelSpec& spec) {
  const WideResNetOptions& o = wide_resnet(spec);
  const Shape& image = spec.image;
  std::string out = "from wideresnet import WideResNet  # of github.com/xternalz/WideResNet-pytorch\n";
  out += concat("\nmodel = WideResNet(", o.depth, ", ", spec.classes, ", ", o.widen, ", ", o.dropout, ")\n");
  if (image[2] != 3) out += concat("model.conv1 = nn.Conv2d(", image[2], ", 16, 3, 1, 1, bias=False)\n");
  if (image[0] != 32 || image[1] != 32) out += "# Its last pooling, of 8x8, must take the mean of all pixels.\n";
  return out;
}

}  // namespace

ModelEntry wide_resnet_model() {
  return {.name = "wide_resnet",
          .summary = "WideResNet-28-10; --depth and --widen give others",
          .settings = WideResNetOptions{},
          .make = make_wide_resnet,
          .features = [](const ModelSpec& spec) { return 64 * wide_resnet(spec).widen; },
          .image = {32, 32, 3},
          .multiple = any_size,
          .first = first_of_wide_resnet,
          .pytorch = wide_resnet_in_pytorch,
          .repeats = true};
}

}  // namespace ringtape
