#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/settings.h"
#include "nn/classifier.h"
#include "nn/module.h"

namespace ringtape {

struct ModelSpec {
  Shape image;             // (H, W, C)
  int64_t classes = 10;    // 0: no last layer; the output is the features
  Settings settings = {};  // the model's own
  // Some of the images that will train it, f32 (N, H, W, C) on cpu:0, normalised, for what begins as a function of
  // them; the same on all ranks. Empty: its weights come from elsewhere.
  std::function<Tensor()> images = {};
};

struct NamedShape {
  std::string name;
  Shape shape;
};

// A network that the command line knows by name, from here or from a program that registers its own: images (N, H, W,
// C) -> logits (N, classes). One that is no nn::Classifier is trained and tested, but has no features.
struct ModelEntry {
  const char* name;
  const char* summary;  // one line
  Settings settings = {};
  std::unique_ptr<nn::Module> (*make)(const ModelSpec& spec);
  // F of its features (N, F), the input of the last layer; null: it is no nn::Classifier.
  int64_t (*features)(const ModelSpec& spec) = nullptr;
  Shape image = {};  // (H, W, C) used by benchmarks
  // After construction, accepts images whose height and width are multiples of this; null: only those of its own size.
  int64_t (*multiple)(const ModelSpec& spec) = nullptr;
  // Name and shape, in the order of files, of its first weight: it shows the sizes of the network in a file.
  NamedShape (*first)(const ModelSpec& spec) = nullptr;
  // Python code that creates the same network in PyTorch, as `model`: imports, a blank line, the rest.
  std::string (*pytorch)(const ModelSpec& spec) = nullptr;
  bool repeats = false;  // its steps do the same work as long as their shapes and Module::form() stay

  bool accepts(const ModelSpec& spec, const Shape& image) const;  // (H, W, C), once it is made from `spec`
};
inline int64_t any_size(const ModelSpec&) { return 1; }
std::span<const ModelEntry> models();
struct RegisterModel {
  explicit RegisterModel(const ModelEntry& entry);
};
const ModelEntry& find_model(const std::string& name);  // throws UsageError with the nearest name

// A model as nn::Classifier; `name` is for the message. Throws UsageError if it is not one.
nn::Classifier& classifier(nn::Module& model, const std::string& name);
// The name of a model's last layer; empty if it is no nn::Classifier.
std::string last_layer_of(const nn::Module& model);

}  // namespace ringtape
