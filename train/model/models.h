#pragma once
#include <memory>
#include <span>
#include <string>

#include "core/settings.h"
#include "nn/classifier.h"
#include "nn/module.h"

namespace ringtape {

struct ModelSpec {
  Shape image;             // (H, W, C)
  int64_t classes = 10;    // 0: no last layer, so that features come out
  Settings settings = {};  // of the model
};

struct NamedShape {
  std::string name;
  Shape shape;
};

// A network the command line knows by name: images (N, H, W, C) -> logits (N, classes).
struct ModelEntry {
  const char* name;
  const char* summary;  // one line
  Settings settings = {};
  std::unique_ptr<nn::Module> (*make)(const ModelSpec& spec);
  Shape image;            // (H, W, C) that it is benchmarked on
  bool any_size = false;  // once made, it takes images of other heights and widths, too
  // Its first weight, as files hold it, by which its sizes can be told.
  NamedShape (*first)(const ModelSpec& spec) = nullptr;
  // Python that makes the same network, `model`, in PyTorch: imports, a blank line, the rest.
  std::string (*pytorch)(const ModelSpec& spec) = nullptr;
};
std::span<const ModelEntry> models();
const ModelEntry& find_model(const std::string& name);  // throws UsageError with the nearest name

// A model of that name as features and a last layer; throws UsageError where it is not made like that.
nn::Classifier& classifier(nn::Module& model, const std::string& name);

}  // namespace ringtape
