#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/settings.h"
#include "core/tensor.h"

namespace ringtape {

class EncodedImages;
class ImageCache;
class ImageContents;

// Labelled images: bytes in the memory of the host or, after keep_on_device(), of a device, or files that are decoded
// when a batch needs them.
struct Dataset {
  std::string name;         // "mnist"
  std::string source = {};  // the origin: a folder, or "generated, seed 1"
  Tensor images;            // u8 (N, H, W, C); undefined if each batch decodes its images
  Tensor labels;            // i64 (N), each in [0, classes)
  int classes = 0;
  std::vector<float> mean, deviation;  // per channel, for pixels scaled to [0, 1]
  std::vector<std::string> class_names = {};
  std::shared_ptr<const EncodedImages> encoded = {};  // the images as files have them; null: there are none
  Shape decoded = {};                                 // (H, W, 3): what each of these becomes

  int64_t size() const { return labels.size(); }
  std::shared_ptr<const ImageCache> cache = {};  // the file that `images` are of; null: another memory
  std::shared_ptr<ImageContents> contents = {};  // of images in files, and in `cache`; null: not followed
  bool is_encoded() const { return !images.defined(); }
  Shape image() const { return is_encoded() ? decoded : images.shape().without(0); }  // (H, W, C)
  // Writes the bytes of image i, (H, W, C).
  void copy_image(int64_t i, uint8_t* to) const;
};

// Throws ShapeError, DTypeError or UsageError unless the members are as Dataset says, and its tensors contiguous.
void check_dataset(const Dataset& data);

// An image that was left out: its split, its name within the data set, the size of its file, and why.
struct DamagedImage {
  std::string split, name;
  int64_t bytes;
  std::string message;
};

struct Splits {
  Dataset train, test;
  std::optional<Dataset> val = {};      // images for validation; none: training images are held out
  std::vector<std::string> notes = {};  // what was left out or changed, one line each
  std::vector<DamagedImage> damaged = {};

  const Dataset& validation() const { return val ? *val : train; }  // what validation images are part of
  template <class F> void each(F&& f) {
    f(train), f(test);
    if (val) f(*val);
  }
  template <class F> void each(F&& f) const {
    f(train), f(test);
    if (val) f(*val);
  }
};

// From now on, images are normalised by ImageNet's mean and deviation, as in many published recipes. Throws UsageError
// unless the images have three channels.
void normalize_as_imagenet(Splits& data);

struct DataRequest {
  std::string dir = {};    // folder of the files; empty: RINGTAPE_DATA_DIR, else ./data
  Settings settings = {};  // of the data set
  uint64_t seed = 0;
  bool progress = false;           // show a bar while files are decoded
  bool train = true, test = true;  // which images are needed; a generated set makes one image of each other split
  // If images take time: called when they have been found and are about to be read or generated.
  std::function<void()> begins = {};
  bool labels = true;  // whether images without labels are refused
  bool check = false;  // of files: only decode all images, for Splits::damaged
  int64_t side = 0;    // of images whose size the settings leave open; 0: it is up to the set
};

std::string data_root(const DataRequest& request);  // the folder of the request, with the default applied

// No file of a data set was found.
struct MissingData : IoError {
  using IoError::IoError;
};

// A data set that the command line knows by name, from here or from a program that registers its own.
struct DatasetEntry {
  const char* name;
  const char* summary;  // one line
  bool generated;       // needs no files
  int64_t val_size;     // training images held out by default if there are at least twice as many; else a tenth
  const char* model;    // the default model
  Splits (*load)(const DataRequest& request);
  Settings settings = {};
};
std::span<const DatasetEntry> datasets();
struct RegisterDataset {
  explicit RegisterDataset(const DatasetEntry& entry);
};
const DatasetEntry& find_dataset(const std::string& name);  // throws UsageError with the nearest name

inline constexpr int64_t kShuffleBuffer = 10'000;
struct DataOptions {
  Selection set{datasets(), "shapes"};
  std::string dir;        // empty: RINGTAPE_DATA_DIR, else ./data
  int64_t val_size = -1;  // -1: the data set's default
  double train_fraction = 1;
  bool balanced = false;              // see balanced()
  int64_t shuffle_buffer = -1;        // see shuffled(); 0: all samples; -1: kShuffleBuffer for archives, else all
  std::string normalize = "dataset";  // or "imagenet"
};
void visit(Fields& f, DataOptions& o);  // except the settings of each data set

std::string how_to_get(const std::string& name);  // the end of a message about missing files of the set

// The number of training images held out by default.
int64_t default_val_size(const DatasetEntry& entry, int64_t n);

// Mean and deviation per channel over all images, u8 (N, H, W, C) on the host; pixels scaled to [0, 1]. The deviation
// of a channel with one level is exactly 0.
struct PixelStatistics {
  std::vector<float> mean, deviation;
  int highest = 0;  // level
};
PixelStatistics pixel_statistics(const Tensor& images);

// A random split of the training images: those that train and those that validate. Depends only on the arguments.
struct Holdout {
  std::vector<int64_t> train, val;  // val: of Splits::validation()
};
Holdout holdout(int64_t n, int64_t val_size, uint64_t seed);  // throws UsageError unless 0 <= val_size < n

// The first of the samples of each class, so that `fraction` of them remain, at least one; their order stays.
// labels: i64 (N), each in [0, classes), or all 0.
std::vector<int64_t> fraction_of(const std::vector<int64_t>& samples, const Tensor& labels, int classes,
                                 double fraction);

}  // namespace ringtape
