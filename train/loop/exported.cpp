#include "train/loop/exported.h"

#include <algorithm>
#include <cmath>

#include "train/data/files/encoded_images.h"
#include "train/io/json.h"

namespace ringtape {

static std::string number_list(const std::vector<float>& numbers) {
  std::string out;
  for (float x : numbers) out += (out.empty() ? "" : ", ") + shortest(std::round(double(x) * 1e6) / 1e6);
  return "[" + out + "]";
}

// Python code that removes the last layer, "fc" or "3", of `model`.
static std::string without(const std::string& last) {
  const bool number = last.find_first_not_of("0123456789") == std::string::npos;
  return (number ? "model[" + last + "]" : "model." + last) + " = nn.Identity()\n";
}

// The list of classes for the README; empty if it is unknown or too long.
static std::string classes_text(const std::vector<std::string>& names) {
  constexpr size_t kLongest = 10'000;
  const std::string list = Json(names).text();
  return names.empty() || list.size() > kLongest ? "" : "\n\nClasses, in the order of the outputs: " + list;
}

// How files of images became these, in torchvision's words.
static std::string scaling_text(const ImageReading& how, const Shape& image) {
  const std::string upright = how.upright ? " ImageOps.exif_transpose," : "";
  const std::string filter = how.interpolation == Interpolation::bicubic ? ", InterpolationMode.BICUBIC" : "";
  const int64_t height = image[0], width = image[1];
  if (height != width)
    return concat("; those of files are the result of", upright, " Resize((", height, ", ", width, ")", filter, ")");
  return concat("; those of files are the result of", upright, " Resize(", how.resize > 0 ? how.resize : height, filter,
                "), CenterCrop(", height, ")");
}

std::string exported_python(const Task& task, bool backbone) {
  const ModelEntry& entry = find_model(task.model_name);
  if (!entry.pytorch) return "";
  ModelSpec spec = task.spec;
  spec.classes = std::max<int64_t>(spec.classes, 1);  // PyTorch warns of a layer without outputs, even if it is removed
  return concat("from torch import nn\n", entry.pytorch(spec),
                backbone ? without(classifier(task.network(), task.model_name).last_layer()) : "");
}

std::string exported_readme(const Task& task, const std::string& file, bool backbone) {
  const Dataset& data = task.data.train;
  std::string out =
      concat("# ", task.model_name, " trained ", task.method_name.empty() ? "" : concat("by ", task.method_name, " "),
             "on ", data.name, "\n\n`", file, "` has its weights", backbone ? ", but for the last layer's," : "",
             " under PyTorch's names and in PyTorch's order.\n");
  const bool safetensors = file.ends_with(".safetensors");
  if (const std::string python = exported_python(task, backbone); !python.empty())
    out += concat("\n```python\n", safetensors ? "from safetensors.torch import load_file" : "import torch", "\n",
                  python, "model.load_state_dict(", safetensors ? "load_file" : "torch.load", "(\"", file,
                  "\"), strict=True)\nmodel.eval()\n```\n");
  const Shape& image = task.spec.image;  // (H, W, C)
  out += concat("\nImages are (N, ", image[2], ", ", image[0], ", ", image[1], ") with values in [0, 1]",
                data.mean.empty() ? ", normalised as in their training"
                                  : concat(", normalised by channel: x = (x - mean) / deviation, with mean ",
                                           number_list(data.mean), " and deviation ", number_list(data.deviation)),
                data.encoded ? scaling_text(data.encoded->reading(), image) : "", ".",
                backbone ? "" : classes_text(data.class_names), "\n\nWithout Python: `ringtape evaluate ", file,
                data.mean.empty() ? concat(" --model ", task.model_name, " --data NAME") : "",
                data.encoded ? " --data-dir DIR" : "", backbone ? " --protocol knn" : "", "`",
                backbone && data.classes == 0 ? ", with images that have labels" : "", ".\n");
  return out;
}

}  // namespace ringtape
