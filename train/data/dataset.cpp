#include "train/data/dataset.h"

#include "core/env.h"
#include "core/random.h"
#include "train/data/cifar.h"
#include "train/data/mnist.h"
#include "train/data/shapes.h"
#include "train/suggest.h"

namespace ringtape {

static const DatasetEntry kDatasets[] = {
    {"mnist", "handwritten digits, 28x28 grey, 60,000 + 10,000, idx files", false, 5000, load_mnist},
    {"fashion_mnist", "articles of clothing, 28x28 grey, 60,000 + 10,000, idx files", false, 5000,
     load_fashion_mnist},
    {"cifar10", "photographs of ten kinds, 32x32 RGB, 50,000 + 10,000, binary version", false, 5000, load_cifar10},
    {"cifar100", "photographs of a hundred kinds, 32x32 RGB, 50,000 + 10,000, binary version", false, 5000, load_cifar100},
    {"shapes", "coloured shapes on textures, 32x32 RGB, generated: any size, no files", true, 0, load_shapes},
};

std::span<const DatasetEntry> datasets() { return kDatasets; }

const DatasetEntry& find_dataset(const std::string& name) {
  std::vector<std::string> names;
  for (const DatasetEntry& entry : kDatasets) {
    if (name == entry.name) return entry;
    names.emplace_back(entry.name);
  }
  throw UsageError(unknown("data set", name, names));
}

std::string data_root(const DataRequest& request) {
  const std::string& given = request.dir.empty() ? env::data_dir() : request.dir;
  return given.empty() ? "./data" : given;
}

std::string how_to_get(const std::string& name) {
  return concat("`ringtape data download ", name, " --data-dir DIR` gets it, --data-dir or RINGTAPE_DATA_DIR names its folder, and --data "
                "shapes needs no files");
}

int64_t default_val_size(const DatasetEntry& entry, int64_t n) {
  return entry.val_size > 0 && 2 * entry.val_size <= n ? entry.val_size : n / 10;
}

Holdout holdout(int64_t n, int64_t val_size, uint64_t seed) {
  RT_CHECK_AS(UsageError, val_size >= 0 && val_size < n, "--val-size ", val_size, ": the data set has ", n,
              " training images, and at least one must be left to train on");
  const std::vector<int64_t> order = permutation(n, seed, Stream::split, 0);
  const auto cut = order.end() - val_size;
  return {{order.begin(), cut}, {cut, order.end()}};
}

}  // namespace ringtape
