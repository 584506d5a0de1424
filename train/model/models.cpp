#include "train/model/models.h"

#include "core/registry.h"
#include "train/model/families.h"

namespace ringtape {

static std::vector<ModelEntry>& registered_models() {
  static std::vector<ModelEntry> all = [] {
    std::vector<ModelEntry> out = {mlp_model(), fashion_cnn_model()};
    for (ModelEntry& entry : resnet_models()) out.push_back(std::move(entry));
    out.push_back(wide_resnet_model()), out.push_back(cifar_net_model());
    for (ModelEntry& entry : vit_models()) out.push_back(std::move(entry));
    return out;
  }();
  return all;
}

std::span<const ModelEntry> models() { return registered_models(); }
RegisterModel::RegisterModel(const ModelEntry& entry) { add_entry(registered_models(), entry); }

bool ModelEntry::accepts(const ModelSpec& spec, const Shape& other) const {
  const int64_t step = multiple ? multiple(spec) : 0;
  return other == spec.image ||
         (step > 0 && other[2] == spec.image[2] && other.size() > 0 && other[0] % step == 0 && other[1] % step == 0);
}

void visit_checkpointing(Fields& f, bool& on) {
  f("checkpointing", on,
    {.help = "backward computes each block once more instead of keeping its activations: less memory, more time, the "
             "same bytes",
     .may_change = true});
}

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
