#include "train/exported.h"

#include <cmath>

namespace ringtape {

static std::string list(const std::vector<float>& numbers) {
  std::string out;
  for (float x : numbers) out += (out.empty() ? "" : ", ") + shortest(std::round(double(x) * 1e6) / 1e6);
  return "[" + out + "]";
}

std::string exported_readme(const Task& task) {
  const TrainOptions& o = task.options;
  const ModelEntry& entry = find_model(o.model);
  const Dataset& data = task.data.train;
  std::string out = concat("# ", o.model, " trained on ", data.name,
                           "\n\n`model.safetensors` has its weights under PyTorch's names and in PyTorch's order.\n");
  if (entry.pytorch)
    out += "\n```python\nfrom safetensors.torch import load_file\nfrom torch import nn\n\n" + entry.pytorch(task.spec) +
           "model.load_state_dict(load_file(\"model.safetensors\"), strict=True)\nmodel.eval()\n```\n";
  const Shape& image = task.spec.image;  // (H, W, C)
  out += concat("\nImages are (N, ", image[2], ", ", image[0], ", ", image[1], ") with values in [0, 1], normalised by channel: x = (x - mean) / deviation, ",
                "with mean ", list(data.mean), " and deviation ", list(data.deviation), ".\n\nWithout Python: `ringtape evaluate model.safetensors`.\n");
  return out;
}

}  // namespace ringtape
