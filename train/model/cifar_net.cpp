#include "nn/nn.h"
#include "train/model/families.h"

namespace ringtape {
namespace {

struct CifarNetOptions {
  int64_t width = 64;
  int64_t bias_epochs = 3;
};
void visit(Fields& f, CifarNetOptions& o) {
  f("width", o.width,
    {.help = "channels of the first block; the others have four times as many",
     .unit = "N",
     .range = {1, 1024},
     .scope = FieldScope::weights});
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

ModelEntry cifar_net_model() {
  return {.name = "cifar_net",
          .summary = "Jordan's network for ten epochs of CIFAR-10: a whitening layer and three blocks",
          .settings = CifarNetOptions{},
          .make = make_cifar_net,
          .features = [](const ModelSpec& spec) { return 4 * cifar_net(spec).width; },
          .image = {32, 32, 3},
          .multiple = any_size,
          .first = first_of_cifar_net,
          .pytorch = cifar_net_in_pytorch,
          .repeats = true};
}

}  // namespace ringtape
