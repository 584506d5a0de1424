#include "train/exported.h"

#include <cmath>

namespace ringtape {

static std::string list(const std::vector<float>& numbers) {
  std::string out;
  for (float x : numbers) out += (out.empty() ? "" : ", ") + shortest(std::round(double(x) * 1e6) / 1e6);
  return "[" + out + "]";
}

std::string exported_name(const Task& task) { return task.method ? "backbone.safetensors" : "model.safetensors"; }

std::string exported_readme(const Task& task) {
  const TrainOptions& o = task.options;
  const ModelEntry& entry = find_model(o.model);
  const Dataset& data = task.data.train;
  const std::string file = exported_name(task), as = task.method ? concat(" without its last layer, trained by ", o.method, " on ") : " trained on ";
  std::string out = concat("# ", o.model, as, data.name, "\n\n`", file, "` has its weights under PyTorch's names and in PyTorch's order.\n");
  if (o.no_stem_relu) out += "\nThere is no ReLU behind the first convolution, as in lightly's benchmark.\n";
  else if (entry.pytorch && o.width == 64)
    out += concat("\n```python\nfrom safetensors.torch import load_file\nfrom torch import nn\n\n", entry.pytorch(task.spec),
                  task.method ? "model.fc = nn.Identity()\n" : "", "model.load_state_dict(load_file(\"", file, "\"), strict=True)\nmodel.eval()\n```\n");
  const Shape& image = task.spec.image;  // (H, W, C)
  out += concat("\nImages are (N, ", image[2], ", ", image[0], ", ", image[1], ") with values in [0, 1], normalised by channel: x = (x - mean) / deviation, ",
                "with mean ", list(data.mean), " and deviation ", list(data.deviation), ".\n");
  if (!task.method) out += "\nWithout Python: `ringtape evaluate model.safetensors`.\n";
  return out;
}

}  // namespace ringtape
