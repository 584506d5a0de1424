#include <algorithm>
#include <array>

#include "nn/nn.h"
#include "train/model/families.h"

namespace ringtape {
namespace {

struct ResNetOptions {
  int64_t width = 64;
  std::string stem = "auto";
  bool no_stem_relu = false;
  int64_t stem_padding = 1;
  bool checkpointing = false;
};
void visit(Fields& f, ResNetOptions& o) {
  f("width", o.width,
    {.help = "channels of the first stage's 3x3 convolutions; each later stage doubles them",
     .unit = "N",
     .range = {1, 1024},
     .scope = FieldScope::weights});
  f("stem", o.stem,
    {.help =
         "first layers: cifar (a 3x3 convolution), imagenet (7x7 and max-pool, for weights that have them), or auto: "
         "by the size of the images",
     .unit = "NAME",
     .choices =
         [] {
           return std::vector<std::string>{"auto", "cifar", "imagenet"};
         },
     .scope = FieldScope::weights});
  f("no-stem-relu", o.no_stem_relu,
    {.help = "no ReLU after the first convolution, as in lightly's benchmark", .scope = FieldScope::weights});
  f("stem-padding", o.stem_padding,
    {.help = "padding of the first convolution if it is 3x3; solo-learn uses 2",
     .unit = "N",
     .range = {0, 8},
     .scope = FieldScope::weights});
  visit_checkpointing(f, o.checkpointing);
}
const ResNetOptions& resnet(const ModelSpec& spec) { return spec.settings.as<ResNetOptions>(); }

// Below 112 pixels the ImageNet stem would shrink an image too much.
nn::Stem stem_for(const ModelSpec& spec) {
  if (const std::string& chosen = resnet(spec).stem; chosen != "auto")
    return chosen == "cifar" ? nn::Stem::cifar : nn::Stem::imagenet;
  return std::min(spec.image[0], spec.image[1]) < 112 ? nn::Stem::cifar : nn::Stem::imagenet;
}

struct ResNetKind {
  int depth;
  std::array<int64_t, 4> blocks;
  nn::Block block;
};
template <ResNetKind kind> std::unique_ptr<nn::Module> make_resnet(const ModelSpec& spec) {
  const ResNetOptions& o = resnet(spec);
  return std::make_unique<nn::ResNet>(nn::ResNet::Options{.blocks = kind.blocks,
                                                          .block = kind.block,
                                                          .in = spec.image[2],
                                                          .classes = spec.classes,
                                                          .stem = stem_for(spec),
                                                          .width = o.width,
                                                          .stem_padding = o.stem_padding,
                                                          .stem_relu = !o.no_stem_relu,
                                                          .checkpointing = o.checkpointing});
}

template <ResNetKind kind> int64_t features_of_resnet(const ModelSpec& spec) {
  return nn::ResNet::features_of(kind.block, resnet(spec).width);
}

NamedShape first_of_resnet(const ModelSpec& spec) {
  const int64_t kernel = stem_for(spec) == nn::Stem::cifar ? 3 : 7;
  return {"conv1.weight", {resnet(spec).width, spec.image[2], kernel, kernel}};
}

template <ResNetKind kind> std::string resnet_in_pytorch(const ModelSpec& spec) {
  const ResNetOptions& o = resnet(spec);
  const int64_t in = spec.image[2], width = o.width;
  const bool narrow = width != ResNetOptions().width, small = stem_for(spec) == nn::Stem::cifar;
  const char* const block = kind.block == nn::Block::basic ? "BasicBlock" : "Bottleneck";
  std::string out = concat("from torchvision.models import resnet", kind.depth, "\n");
  if (narrow) out += concat("from torchvision.models.resnet import ", block, "\n");
  out += concat("\nmodel = resnet", kind.depth, "(num_classes=", spec.classes, ")\n");
  if (small) out += concat("model.conv1 = nn.Conv2d(", in, ", ", width, ", 3, 1, ", o.stem_padding, ", bias=False)\n");
  else if (in != 3 || narrow) out += concat("model.conv1 = nn.Conv2d(", in, ", ", width, ", 7, 2, 3, bias=False)\n");
  if (small) out += "model.maxpool = nn.Identity()\n";
  if (o.no_stem_relu) out += "model.relu = nn.Identity()  # only the first one: blocks have their own\n";
  if (!narrow) return out;
  out += concat("model.bn1, model.inplanes = nn.BatchNorm2d(", width, "), ", width, "\n");
  int stage = 0;
  for (const int64_t count : kind.blocks) {
    ++stage;
    out += concat("model.layer", stage, " = model._make_layer(", block, ", ", width << (stage - 1), ", ", count,
                  stage > 1 ? ", stride=2)\n" : ")\n");
  }
  return out + concat("model.fc = nn.Linear(", features_of_resnet<kind>(spec), ", ", spec.classes, ")\n");
}

template <ResNetKind kind> ModelEntry resnet_entry(const char* name, const char* summary) {
  return {.name = name,
          .summary = summary,
          .settings = ResNetOptions{},
          .make = make_resnet<kind>,
          .features = features_of_resnet<kind>,
          .image = {32, 32, 3},
          .multiple = any_size,
          .first = first_of_resnet,
          .pytorch = resnet_in_pytorch<kind>,
          .repeats = true};
}

}  // namespace

std::vector<ModelEntry> resnet_models() {
  constexpr std::array<int64_t, 4> k18 = {2, 2, 2, 2}, k34 = {3, 4, 6, 3}, k101 = {3, 4, 23, 3};
  constexpr nn::Block basic = nn::Block::basic, bottleneck = nn::Block::bottleneck;
  return {resnet_entry<ResNetKind{18, k18, basic}>(
              "resnet18", "ResNet-18: 3x3 stem below 112 pixels, else torchvision's 7x7 stem with max-pool"),
          resnet_entry<ResNetKind{34, k34, basic}>("resnet34", "ResNet-34, with the same stems as resnet18"),
          resnet_entry<ResNetKind{50, k34, bottleneck}>(
              "resnet50", "ResNet-50: bottleneck blocks, with the same stems as resnet18"),
          resnet_entry<ResNetKind{101, k101, bottleneck}>("resnet101", "ResNet-101, with the blocks of resnet50")};
}

}  // namespace ringtape
