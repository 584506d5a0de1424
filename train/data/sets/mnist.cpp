#include "train/data/sets/mnist.h"

#include <filesystem>

#include "train/data/sets/idx.h"
#include "train/io/look.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

struct MnistSource {
  const char* name;
  const char* torchvision;  // torchvision's folder
  float mean, deviation;
  std::vector<std::string> class_names;
};

struct IdxPair {
  std::string images, labels;
};

// The path of the file in `folder`, in any of its spellings; empty if it is not there.
std::string find_file(const fs::path& folder, std::string name) {
  const size_t dash = name.rfind("-idx");
  std::string dotted = name;
  dotted[dash] = '.';
  for (const std::string& spelling : {name, dotted})
    for (const char* suffix : {"", ".gz"}) {
      const fs::path path = folder / (spelling + suffix);
      if (is_there(path)) return path.string();
    }
  return {};
}

std::vector<fs::path> places(const MnistSource& source, const DataRequest& request) {
  const fs::path root = data_root(request);
  return {root / source.torchvision / "raw", root / source.name, root};
}

fs::path find_mnist_folder(const MnistSource& source, const DataRequest& request) {
  const std::vector<fs::path> looked = places(source, request);
  for (const fs::path& folder : looked)
    if (!find_file(folder, "train-images-idx3-ubyte").empty()) return folder;
  const fs::path& root = looked.back();
  RT_CHECK_AS(MissingData, is_folder_at(root), source.name, ": no folder ", root.string(), "; ",
              how_to_get(source.name));
  detail::fail<MissingData>({source.name, ": no train-images-idx3-ubyte(.gz) in ", looked[2].string(), ", ",
                             looked[1].string(), " or ", looked[0].string(), "; ", how_to_get(source.name)});
}

IdxPair find_pair(const MnistSource& source, const fs::path& folder, const std::string& split) {
  const auto find = [&](const std::string& name) {
    const std::string path = find_file(folder, name);
    RT_CHECK_AS(IoError, !path.empty(), source.name, ": no ", name, "(.gz) in ", folder.string(), "; ",
                how_to_get(source.name));
    return path;
  };
  return {find(split + "-images-idx3-ubyte"), find(split + "-labels-idx1-ubyte")};
}

Tensor read_labels(const std::string& path, int classes) {
  const Tensor bytes = read_idx(path, 1);
  Tensor out(bytes.shape(), DType::i64);
  const auto from = bytes.span<uint8_t>();
  int64_t* to = out.data<int64_t>();
  for (size_t i = 0; i < from.size(); ++i) {
    RT_CHECK_AS(FormatError, from[i] < classes, path, ": label ", int(from[i]), " at position ", i,
                "; expected labels from 0 to ", classes - 1);
    to[i] = from[i];
  }
  return out;
}

Dataset load_mnist_split(const MnistSource& source, const IdxPair& files, const fs::path& folder) {
  Dataset set;
  set.name = source.name;
  set.source = fs::absolute(folder).lexically_normal().string();
  set.class_names = source.class_names;
  set.classes = int(source.class_names.size());
  set.mean = {source.mean};
  set.deviation = {source.deviation};
  set.labels = read_labels(files.labels, set.classes);
  const Tensor images = read_idx(files.images, 3);
  RT_CHECK_AS(FormatError, images.dim(0) == set.labels.dim(0), files.images, " holds ", images.dim(0), " images but ",
              files.labels, " ", set.labels.dim(0), " labels; they are not from the same download");
  RT_CHECK_AS(FormatError, images.size() > 0, files.images, ": no images, or images without pixels: ", images.shape());
  Shape shape = images.shape();
  shape.append(1);
  set.images = images.window(shape, contiguous_strides(shape));
  return set;
}

Splits load_mnist_source(const MnistSource& source, const DataRequest& request) {
  const fs::path folder = find_mnist_folder(source, request);
  const IdxPair train = find_pair(source, folder, "train"), test = find_pair(source, folder, "t10k");
  Splits out{load_mnist_split(source, train, folder), load_mnist_split(source, test, folder)};
  const Shape &a = out.train.images.shape(), &b = out.test.images.shape();
  RT_CHECK_AS(FormatError, a.without(0) == b.without(0), source.name, ": training images ", a, " and test images ", b,
              " differ in size");
  return out;
}

}  // namespace

Splits load_mnist(const DataRequest& request) {
  return load_mnist_source({"mnist", "MNIST", 0.1307f, 0.3081f, {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
                           request);
}

Splits load_fashion_mnist(const DataRequest& request) {
  return load_mnist_source(
      {"fashion_mnist",
       "FashionMNIST",
       0.2860f,
       0.3530f,
       {"t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"}},
      request);
}

}  // namespace ringtape
