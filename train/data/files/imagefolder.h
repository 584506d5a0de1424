#pragma once
#include "train/data/files/image_store.h"
#include "train/data/files/split_folders.h"

namespace ringtape {

struct ImageFolderOptions {
  ImageOptions images = {};
  SplitFolderOptions folders = {};
};
void visit(Fields& f, ImageFolderOptions& o);

// A folder DIR of images (kImageEndings), in folders of one class each, at any depth within them: DIR/train/CLASS/...
// and DIR/test, with the same layout; DIR/val has the validation images, or the test images if there is no DIR/test.
// Without DIR/train: DIR/CLASS/..., where every tenth image of a class, by name, is a test image, and the last one of
// fewer than ten. Classes are numbered in the byte order of their names. If the request needs no labels, images may
// also lie in DIR or DIR/train themselves, more than there are folders: then all below it train, and none tests. See
// load_images for what becomes of them. Throws MissingData if there are no such folders; FormatError for a class
// without images, a class of validation or test images without training images, and damaged images.
Splits load_imagefolder(const DataRequest& request);

}  // namespace ringtape
