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

std::string mlp_in_pytorch(const ModelSpec& spec) {
  const std::string dropout = spec.dropout > 0 ? concat("nn.Dropout(", spec.dropout, "), ") : "";
  return concat("model = nn.Sequential(nn.Flatten(), nn.Linear(", spec.image.size(), ", ", spec.hidden, "), nn.ReLU(), ", dropout, "nn.Linear(",
                spec.hidden, ", ", spec.classes, "))\n# It takes images as (N, H, W, C): model(x.permute(0, 2, 3, 1)).\n");
}

const ModelEntry kModels[] = {
    {"mlp", "one hidden layer: flatten, linear, ReLU, linear (--hidden, --dropout)", make_mlp, mlp_in_pytorch},
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
