#include "train/model/models.h"

#include <algorithm>
#include <array>

#include "core/registry.h"
#include "nn/nn.h"

namespace ringtape {
namespace {

struct MlpOptions {
  int64_t hidden = 128;
  double dropout = 0;
};
void visit(Fields& f, MlpOptions& o) {
  f("hidden", o.hidden,
    {.help = "width of the hidden layer", .unit = "N", .range = kPositive, .scope = Scope::weights});
  f("dropout", o.dropout,
    {.help = "probability of zeroing a hidden unit in training",
     .unit = "P",
     .range = kFraction,
     .scope = Scope::weights});
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
  return concat("\nmodel = nn.Sequential(nn.Flatten(), ", first, ", nn.ReLU(), ", dropout, last,
                ")\n# It takes images as (N, H, W, C): model(x.permute(0, 2, 3, 1)).\n");
}

std::unique_ptr<nn::Module> make_fashion_cnn(const ModelSpec& spec) {
  RT_CHECK_AS(UsageError, spec.classes > 0,
              "--model fashion_cnn: cannot be a backbone without its last layer; try resnet18");
  return std::make_unique<nn::FashionCnn>(spec.image[0], spec.image[1], spec.image[2], spec.classes);
}

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
     .scope = Scope::weights});
  f("stem", o.stem,
    {.help =
         "first layers: cifar (a 3x3 convolution), imagenet (7x7 and max-pool, for weights that have them), or auto: "
         "by the size of the images",
     .unit = "NAME",
     .choices =
         [] {
           return std::vector<std::string>{"auto", "cifar", "imagenet"};
         },
     .scope = Scope::weights});
  f("no-stem-relu", o.no_stem_relu,
    {.help = "no ReLU after the first convolution, as in lightly's benchmark", .scope = Scope::weights});
  f("stem-padding", o.stem_padding,
    {.help = "padding of the first convolution if it is 3x3; solo-learn uses 2",
     .unit = "N",
     .range = {0, 8},
     .scope = Scope::weights});
  f("checkpointing", o.checkpointing,
    {.help = "backward computes each block once more instead of keeping its activations: less memory, more time, the "
             "same bytes",
     .may_change = true});
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
constexpr ResNetKind kResNet18{18, {2, 2, 2, 2}, nn::Block::basic}, kResNet34{34, {3, 4, 6, 3}, nn::Block::basic},
    kResNet50{50, {3, 4, 6, 3}, nn::Block::bottleneck}, kResNet101{101, {3, 4, 23, 3}, nn::Block::bottleneck};

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
     .scope = Scope::weights});
  f("widen", o.widen,
    {.help = "times 16 channels of the first stage; each later stage doubles them",
     .unit = "K",
     .range = {1, 64},
     .scope = Scope::weights});
  f("dropout", o.dropout,
    {.help = "probability of zeroing an element between the convolutions of a block, in training",
     .unit = "P",
     .range = kFraction,
     .scope = Scope::weights});
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

struct CifarNetOptions {
  int64_t width = 64;
  int64_t bias_epochs = 3;
};
void visit(Fields& f, CifarNetOptions& o) {
  f("width", o.width,
    {.help = "channels of the first block; the others have four times as many",
     .unit = "N",
     .range = {1, 1024},
     .scope = Scope::weights});
  f("bias-epochs", o.bias_epochs,
    {.help = "epochs in which the bias of the first layer is trained, whose filters are not",
     .unit = "N",
     .range = kCount});
}
const CifarNetOptions& cifar_net(const ModelSpec& spec) { return spec.settings.as<CifarNetOptions>(); }

std::unique_ptr<nn::Module> make_cifar_net(const ModelSpec& spec) {
  const CifarNetOptions& o = cifar_net(spec);
  auto out = std::make_unique<nn::CifarNet>(nn::CifarNet::Options{
      .width = o.width, .bias_epochs = o.bias_epochs, .in = spec.image[2], .classes = spec.classes});
  if (spec.images) out->whiten(spec.images());
  return out;
}

NamedShape first_of_cifar_net(const ModelSpec& spec) {
  return {"block1.conv1.weight", {cifar_net(spec).width, 8 * spec.image[2], 3, 3}};
}

std::string cifar_net_in_pytorch(const ModelSpec& spec) {
  const int64_t in = spec.image[2], width = cifar_net(spec).width;
  const std::string body = R"(
class Scale(nn.Module):
    def forward(self, x):
        return x / 9


def block(n, m):
    return nn.Sequential(OrderedDict(
        conv1=nn.Conv2d(n, m, 3, padding=1, bias=False), pool=nn.MaxPool2d(2),
        norm1=nn.BatchNorm2d(m, eps=1e-12, momentum=0.4), gelu1=nn.GELU(),
        conv2=nn.Conv2d(m, m, 3, padding=1, bias=False),
        norm2=nn.BatchNorm2d(m, eps=1e-12, momentum=0.4), gelu2=nn.GELU()))


)";
  std::string out = concat("from collections import OrderedDict\n", body);
  out +=
      concat("model = nn.Sequential(OrderedDict(\n    whiten=nn.Conv2d(", in, ", ", 8 * in, ", 2), gelu=nn.GELU(),\n");
  out += concat("    block1=block(", 8 * in, ", ", width, "), block2=block(", width, ", ", 4 * width,
                "), block3=block(", 4 * width, ", ", 4 * width, "),\n");
  return out + concat("    pool=nn.AdaptiveMaxPool2d(1), flatten=nn.Flatten(), scale=Scale(),\n    head=nn.Linear(",
                      4 * width, ", ", spec.classes, ", bias=False)))\n");
}

}  // namespace

static std::vector<ModelEntry>& registered_models() {
  static std::vector<ModelEntry> all = {
      {.name = "mlp",
       .summary = "one hidden layer: flatten, linear, ReLU, linear",
       .settings = MlpOptions{},
       .make = make_mlp,
       .features = [](const ModelSpec& spec) { return mlp(spec).hidden; },
       .image = {28, 28, 1},
       .first = first_of_mlp,
       .pytorch = mlp_in_pytorch,
       .repeats = true},
      {.name = "fashion_cnn",
       .summary = "two convolutions and three linear layers, DTU's course network for 28x28 images",
       .make = make_fashion_cnn,
       .features = [](const ModelSpec&) -> int64_t { return 120; },
       .image = {28, 28, 1},
       .repeats = true},
      {.name = "resnet18",
       .summary = "ResNet-18: 3x3 stem below 112 pixels, else torchvision's 7x7 stem with max-pool",
       .settings = ResNetOptions{},
       .make = make_resnet<kResNet18>,
       .features = features_of_resnet<kResNet18>,
       .image = {32, 32, 3},
       .any_size = true,
       .first = first_of_resnet,
       .pytorch = resnet_in_pytorch<kResNet18>,
       .repeats = true},
      {.name = "resnet34",
       .summary = "ResNet-34, with the same stems as resnet18",
       .settings = ResNetOptions{},
       .make = make_resnet<kResNet34>,
       .features = features_of_resnet<kResNet34>,
       .image = {32, 32, 3},
       .any_size = true,
       .first = first_of_resnet,
       .pytorch = resnet_in_pytorch<kResNet34>,
       .repeats = true},
      {.name = "resnet50",
       .summary = "ResNet-50: bottleneck blocks, with the same stems as resnet18",
       .settings = ResNetOptions{},
       .make = make_resnet<kResNet50>,
       .features = features_of_resnet<kResNet50>,
       .image = {32, 32, 3},
       .any_size = true,
       .first = first_of_resnet,
       .pytorch = resnet_in_pytorch<kResNet50>,
       .repeats = true},
      {.name = "resnet101",
       .summary = "ResNet-101, with the blocks of resnet50",
       .settings = ResNetOptions{},
       .make = make_resnet<kResNet101>,
       .features = features_of_resnet<kResNet101>,
       .image = {32, 32, 3},
       .any_size = true,
       .first = first_of_resnet,
       .pytorch = resnet_in_pytorch<kResNet101>,
       .repeats = true},
      {.name = "wide_resnet",
       .summary = "WideResNet-28-10; --depth and --widen give others",
       .settings = WideResNetOptions{},
       .make = make_wide_resnet,
       .features = [](const ModelSpec& spec) { return 64 * wide_resnet(spec).widen; },
       .image = {32, 32, 3},
       .any_size = true,
       .first = first_of_wide_resnet,
       .pytorch = wide_resnet_in_pytorch,
       .repeats = true},
      {.name = "cifar_net",
       .summary = "Jordan's network for ten epochs of CIFAR-10: a whitening layer and three blocks",
       .settings = CifarNetOptions{},
       .make = make_cifar_net,
       .features = [](const ModelSpec& spec) { return 4 * cifar_net(spec).width; },
       .image = {32, 32, 3},
       .any_size = true,
       .first = first_of_cifar_net,
       .pytorch = cifar_net_in_pytorch,
       .repeats = true},
  };
  return all;
}

std::span<const ModelEntry> models() { return registered_models(); }
RegisterModel::RegisterModel(const ModelEntry& entry) { add_entry(registered_models(), entry); }

const ModelEntry& find_model(const std::string& name) { return find_entry(models(), name, "model"); }

nn::Classifier& classifier(nn::Module& model, const std::string& name) {
  auto* const out = dynamic_cast<nn::Classifier*>(&model);
  RT_CHECK_AS(UsageError, out, "--model ", name, ": has no last linear layer whose input could be its features");
  return *out;
}

std::string last_layer_of(const nn::Module& model) {
  const auto* const found = dynamic_cast<const nn::Classifier*>(&model);
  return found ? found->last_layer() : "";
}

}  // namespace ringtape
