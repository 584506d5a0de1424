#pragma once
#include <cstdint>
#include <string>

#include "train/data/dataset.h"

namespace ringtape {

// Identifies a data set, so that a resumed run can check that it is the same.
struct DataIdentity {
  int64_t train = 0, test = 0;  // images
  // CRC-32 of all labels and of all images, in hexadecimal; of images that are not kept: of names and sizes of files.
  std::string labels, pixels;
  bool operator==(const DataIdentity&) const = default;
  // "3,000 training and 500 test images, CRC-32 of their labels 1c2d3e4f, of their pixels 5a6b7c8d"
  std::string str() const;
};

DataIdentity identity_of(const Splits& data);

// The files of the images, a line each: split, name, bytes, separated by tabs; empty if images are not from files. Of
// images that were left out, the split is that of a "damaged train".
std::string list_of_files(const Splits& data);
// The first difference between two such lists: "train/cat/1.jpg: has 12 bytes, had 13"; empty: none.
std::string difference_of(const std::string& before, const std::string& now);

// A run keeps such a list. Throws UsageError, naming the first difference, unless the files are those of the list at
// `path`; if there is no list, any will do.
inline constexpr const char* kDataFilesFile = "data-files.tsv";  // in a run's folder
void write_files(const Splits& data, const std::string& path);   // nothing if images are not from files
void check_files(const Splits& data, const std::string& path);

// The checksums of the images (image_contents.h), as a file in a run's folder: those of all images of --image-store
// disk, and with files of those that the run has read so far.
inline constexpr const char* kDataContentsFile = "data-contents.safetensors";
int64_t known_contents(const Splits& data);  // how many there are
void write_contents(const Splits& data, const std::string& path);
// Throws UsageError, naming the image, if one that was read now was another one then; those that will be read are
// expected to be as they were, else reading them throws. If there is no file, any will do. Throws FormatError for a
// file of another list.
void check_contents(const Splits& data, const std::string& path);

}  // namespace ringtape
