#pragma once
#include "train/data/dataset.h"

namespace ringtape {

struct ImageFolderOptions {
  int64_t image_size = 0;  // side that images are brought to; 0: that of all of them, else 32
};
void visit(Fields& f, ImageFolderOptions& o);

// A folder of images: DIR/train/CLASS/*.jpg (.jpeg, .png, in either case) and DIR/test or DIR/val alike; or
// DIR/CLASS/*.jpg, of which every tenth image of a class, by name, is a test image. Classes are numbered in the order
// of their names' bytes. Images become RGB and of one size: image_size, else their own if all agree, else 32
// (resized_and_cropped). Normalised by the training images' own mean and deviation. Throws MissingData where there are
// no such folders; FormatError for a class without images, a test class that is not trained, and damaged images.
Splits load_imagefolder(const DataRequest& request);

}  // namespace ringtape
