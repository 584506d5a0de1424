#pragma once
#include "train/data/dataset.h"

namespace ringtape {

struct ImageFolderOptions {
  int64_t image_size = 0;  // side of the images; 0: their own if all are equal, else 32
};
void visit(Fields& f, ImageFolderOptions& o);

// A folder of images: DIR/train/CLASS/*.jpg (.jpeg, .png, in either case) and DIR/test or DIR/val with the same layout;
// or DIR/CLASS/*.jpg, where every tenth image of a class, by name, is a test image. Classes are numbered in the byte
// order of their names. Images become RGB and of one size: image_size, else their own if all are equal, else 32
// (resized_and_cropped). Normalised by the training images' mean and deviation. Throws MissingData if there are no such
// folders; FormatError for a class without images, a test class without training images, and damaged images.
Splits load_imagefolder(const DataRequest& request);

}  // namespace ringtape
