#include "nn/nn.h"
#include "train/model/families.h"

namespace ringtape {
static std::unique_ptr<nn::Module> make_fashion_cnn(const ModelSpec& spec) {
  RT_CHECK_AS(UsageError, spec.classes > 0,
              "--model fashion_cnn: cannot be a backbone without its last layer; try resnet18");
  return std::make_unique<nn::FashionCnn>(spec.image[0], spec.image[1], spec.image[2], spec.classes);
}

ModelEntry fashion_cnn_model() {
  return {.name = "fashion_cnn",
          .summary = "two convolutions and three linear layers, DTU's course network for 28x28 images",
          .make = make_fashion_cnn,
          .features = [](const ModelSpec&) -> int64_t { return 120; },
          .image = {28, 28, 1},
          .repeats = true};
}

}  // namespace ringtape
