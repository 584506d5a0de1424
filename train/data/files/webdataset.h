#pragma once
#include "train/data/files/image_store.h"
#include "train/data/files/split_folders.h"

namespace ringtape {

struct WebDatasetOptions {
  ImageOptions images = {.store = "files"};
  SplitFolderOptions folders = {};
};
void visit(Fields& f, WebDatasetOptions& o);

// Images with labels in tar archives, as WebDataset has them (tar_index.h): DIR/train/*.tar, DIR/test and DIR/val as
// for a folder of images; or DIR/*.tar, where an archive whose name has the word "val", "validation" or "test" in it,
// between what are no letters, belongs to that split; there, without test images, every tenth of each
// class is one, at least one. Labels are numbers from 0 on; the classes have the names in the lines of DIR/classes.txt,
// if there is one, else these numbers. If the request needs no labels, images may have none: then all train. See
// load_images for what becomes of them. Throws MissingData if a folder has no archives, or has one only compressed;
// IoError for DIR/train without test images, if the request needs labels; FormatError as index_tar and tar_samples, for
// images of which only some have labels, for labels of validation or test images that no training image has, and for
// damaged images.
Splits load_webdataset(const DataRequest& request);

}  // namespace ringtape
