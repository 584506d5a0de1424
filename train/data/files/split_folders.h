#pragma once
#include <string>
#include <vector>

#include "core/fields.h"
#include "train/data/files/image_list.h"

namespace ringtape {

// Names of the folders of the splits, within that of the data set or elsewhere; empty: see split_folders.
struct SplitFolderOptions {
  std::string train = {}, val = {}, test = {};
};
void visit(Fields& f, SplitFolderOptions& o);

// The folders of the splits; empty: there is none. `train` is `root` if the splits have no folders of their own.
struct SplitFolders {
  std::string root, train, val, test;
  bool divided() const { return train != root; }
};
// What a name says by itself: train or training; val, valid, validation or dev; test or testing; in any case.
enum class Split : uint8_t { none, train, val, test };
Split split_of(const std::string& word);

// In `dir`, by split_of: train, and test; val has the validation images, or the test images if there is no test.
// Throws MissingData, naming the data set, if there is no such folder, UsageError for a folder that is named and not
// there, and for two of a split.
SplitFolders split_folders(const SplitFolderOptions& options, const std::string& dir, const std::string& set);

// Throws FormatError if the folders in this one cannot be classes, as train and test, or images and annotations, or if
// there is one, around those of splits or, if labels are needed, around others.
void check_class_folders(const std::string& root, bool labels);

// Throws IoError if splits have their own folders, labels are needed, and there is none for the test images.
void check_test_folder(const SplitFolders& at, bool labels);

// Moves every tenth image of each class to the test images, and the last one of a class of 2 to 9.
void hold_out_test_images(LabelledImages& train, LabelledImages& test);

}  // namespace ringtape
