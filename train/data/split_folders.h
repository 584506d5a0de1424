#pragma once
#include <string>
#include <vector>

#include "core/fields.h"
#include "train/data/image_list.h"

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
// In `dir`: train, and test; val has the validation images, or the test images if there is no test. Throws MissingData,
// naming the data set, if there is no such folder, UsageError for a folder that is named and not there.
SplitFolders split_folders(const SplitFolderOptions& options, const std::string& dir, const std::string& set);

// Throws IoError if splits have their own folders, labels are needed, and there is none for the test images.
void check_test_folder(const SplitFolders& at, bool labels);

// Moves every tenth image of each class to the test images.
inline constexpr int64_t kEachTest = 10;
void hold_out_test_images(LabelledImages& train, LabelledImages& test);

}  // namespace ringtape
