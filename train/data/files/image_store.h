#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/data/dataset.h"
#include "train/data/files/image_list.h"

namespace ringtape {

// How the images of a data set of files become those that a network sees.
struct ImageOptions {
  int64_t size = 0;           // side of the images; 0: their own if all are equal and small, else 224 or 32
  std::string store = {};     // "memory", "disk" or "files"; empty: memory if it suffices, else files
  int64_t memory = 1024;      // MiB for images that are kept in memory
  std::string cache = {};     // folder for images that are kept on the disk; empty: the user's
  bool skip_damaged = false;  // decode all images at the start and leave out those that cannot be
  int64_t resize = 0;         // of the shorter side before the middle is cut out; 0: `size`
  std::string interpolation = "bilinear";
  bool exif_orientation = false;  // turn images as their Exif data say
};
void visit(Fields& f, ImageOptions& o);

// The lists of a data set of files. `classes` is empty if the images have no labels.
struct ImageLists {
  std::string name, source;
  std::vector<std::string> classes = {};
  LabelledImages train = {}, test = {};
  std::optional<LabelledImages> val = {};
};

// Images become RGB and of one size, scaled and cropped. Those that are kept, in memory or as a file on the disk that
// is read as memory is, are decoded now, once, or, on the disk, in an earlier run. Otherwise each batch decodes its
// images, and random crops are cut from the whole image, not from what it became. Normalised by mean and deviation of
// the training images; of images that are not kept, by those of kMeasured of them, evenly spread. Throws FormatError
// for damaged images that are decoded now and not skipped, and if all images of a split are damaged.
inline constexpr int64_t kMeasured = 2048;
Splits load_images(ImageLists lists, const ImageOptions& options, const DataRequest& request);

}  // namespace ringtape
