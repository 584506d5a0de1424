#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/settings.h"
#include "core/tensor.h"

namespace ringtape {

// Labelled images, held in memory as the bytes they are stored as: the host's, or that of
// the device that trains (keep_on_device).
struct Dataset {
  std::string name;    // "mnist"
  std::string source;  // where it came from: a folder, or "generated, seed 1"
  Tensor images;       // u8 (N, H, W, C)
  Tensor labels;       // i64 (N), each in [0, classes)
  int classes = 0;
  std::vector<float> mean, deviation;  // per channel, of pixels scaled to [0, 1]
  std::vector<std::string> class_names;

  int64_t size() const { return images.dim(0); }
};

struct Splits {
  Dataset train, test;
  std::vector<std::string> notes = {};  // what was left out of the files, or changed: a line each
};

// By mean and deviation of ImageNet from now on, as many published recipes do with any images. Throws UsageError unless
// these have three channels.
void normalize_as_imagenet(Splits& data);

struct DataRequest {
  std::string dir = {};     // where files lie; empty: RINGTAPE_DATA_DIR, else ./data
  Settings settings = {};   // of the data set
  uint64_t seed = 0;
  bool progress = false;    // a bar while files are decoded
  bool train = true, test = true;  // which images are needed; a generated set makes one of those that are not
  // Called where images take a while, when they are found and about to be read or made.
  std::function<void()> begins = {};
};

std::string data_root(const DataRequest& request);  // the folder that the request means

// None of a data set's files is where it was looked for.
struct MissingData : IoError {
  using IoError::IoError;
};

// A data set the command line knows by name.
struct DatasetEntry {
  const char* name;
  const char* summary;  // one line
  bool generated;       // needs no files
  int64_t val_size;     // training images held out by default, where there are twice as many; else a tenth
  const char* model;    // what is trained on it where nothing else is said
  Splits (*load)(const DataRequest& request);
  Settings settings = {};
};
std::span<const DatasetEntry> datasets();
const DatasetEntry& find_dataset(const std::string& name);  // throws UsageError with the nearest name

struct DataOptions {
  Selection set{datasets(), "shapes"};
  std::string dir;                    // empty: RINGTAPE_DATA_DIR, else ./data
  int64_t val_size = -1;              // -1: as the data set has it
  std::string normalize = "dataset";  // or "imagenet"
};
void visit(Fields& f, DataOptions& o);  // but for the settings of the sets themselves

std::string how_to_get(const std::string& name);  // what a message about missing files of that set ends with

// How many training images are held out where nothing else is said.
int64_t default_val_size(const DatasetEntry& entry, int64_t n);

// Per channel, of pixels scaled to [0, 1]: over all images, u8 (N, H, W, C) on the host.
struct PixelStatistics {
  std::vector<float> mean, deviation;
};
PixelStatistics pixel_statistics(const Tensor& images);

// Training images cut in two: which ones train and which ones validate. Depends on the arguments alone.
struct Holdout {
  std::vector<int64_t> train, val;
};
Holdout holdout(int64_t n, int64_t val_size, uint64_t seed);  // throws UsageError unless 0 <= val_size < n

}  // namespace ringtape
