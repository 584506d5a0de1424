#include "train/data/dataset.h"

#include "core/random.h"
#include "train/data/mnist.h"
#include "train/data/shapes.h"
#include "train/suggest.h"

namespace ringtape {

static const DatasetEntry kDatasets[] = {
    {"mnist", "handwritten digits, 28x28 grey, 60,000 + 10,000, idx files", false, 5000, load_mnist},
    {"fashion_mnist", "articles of clothing, 28x28 grey, 60,000 + 10,000, idx files", false, 5000,
     load_fashion_mnist},
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
