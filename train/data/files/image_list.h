#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/data/files/encoded_images.h"

namespace ringtape {

// Images with their labels, in the order of the classes and, within each, of the names in its folder and then in those
// below it, where they stand.
struct LabelledImages {
  std::shared_ptr<const EncodedImages> images = {};
  std::vector<int64_t> labels = {};  // all 0 without classes

  int64_t size() const { return int64_t(labels.size()); }
};

// Some of them, in this order.
LabelledImages chosen(const LabelledImages& from, const std::vector<int64_t>& images);
LabelledImages read_as(const LabelledImages& from, const ImageReading& reading);  // the same images

// What a listing leaves out, and counts.
struct LeftOut {
  std::map<std::string, int64_t> files;  // that are no images by name, by extension
  int64_t loose = 0;                     // images outside the folders of classes
  int64_t unreachable = 0;               // links to nothing, and to folders that the link lies in

  void add(const LeftOut& other);
  std::string str() const;  // "" if there is nothing
};

// The images below the folders of a root, one folder for each class, at any depth within it. Links are followed. Names
// that begin with a dot are passed over. `found` is called now and then with the number of images, by any thread.
struct FolderListing {
  std::vector<std::string> classes;
  LabelledImages images;
  LeftOut left_out;
};
using Found = std::function<void(int64_t images)>;
// Throws IoError for a folder that cannot be read, FormatError for a class without images.
FolderListing list_classes(const std::string& root, const Found& found = {});
// All images below a folder, at any depth, without labels.
FolderListing list_flat(const std::string& root, const Found& found = {});
// Whether more images than folders lie in the folder itself: those of classes have at most a few beside them.
bool has_more_images_than_folders(const std::string& root);

}  // namespace ringtape
