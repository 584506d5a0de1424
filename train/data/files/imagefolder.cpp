#include "train/data/files/imagefolder.h"

#include <algorithm>
#include <filesystem>
#include <mutex>

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMany = 20'000;  // images whose listing takes time

// Lists folders, and says when the images have been found, or when there are many.
class Lister {
 public:
  Lister(const DataRequest& request, const SplitFolders& at) : request_(request) {
    flat_ = !request.labels && has_more_images_than_folders(at.train);
  }
  bool flat() const { return flat_; }

  FolderListing list(const std::string& root) {
    FolderListing out = flat_ ? list_flat(root, found_) : list_classes(root, found_);
    left_out.add(out.left_out);
    return out;
  }
  // The same; its classes get the numbers that they have in the training images.
  LabelledImages list(const std::string& root, const FolderListing& train, const std::string& train_root) {
    FolderListing out = list(root);
    const bool flat = has_more_images_than_folders(root);
    RT_CHECK_AS(MissingData, out.images.size() > 0, root, ": no images (", kImageEndings, ") in folders of classes",
                flat ? concat("; sort them into such, or train without them: --data-dir ", train_root) : "");
    for (int64_t& label : out.images.labels) {
      const std::string& name = out.classes[size_t(label)];
      const auto at = std::lower_bound(train.classes.begin(), train.classes.end(), name);
      const bool known = at != train.classes.end() && *at == name;
      if (!known) check_class_folders(root, false);
      RT_CHECK_AS(FormatError, known, (fs::path(root) / name).string(), ": no class of that name in ", train_root);
      label = at - train.classes.begin();
    }
    return std::move(out.images);
  }
  void say() {
    std::call_once(said_, [&] {
      if (request_.begins) request_.begins();
    });
  }

  LeftOut left_out;

 private:
  const DataRequest& request_;
  bool flat_ = false;
  std::once_flag said_;
  const Found found_ = [this](int64_t images) {
    if (images >= kMany) say();
  };
};

}  // namespace

void visit(Fields& f, ImageFolderOptions& o) {
  visit(f, o.images);
  visit(f, o.folders);
}

Splits load_imagefolder(const DataRequest& request) {
  const auto& options = request.settings.as<ImageFolderOptions>();
  const SplitFolders at = split_folders(options.folders, data_root(request), "imagefolder");
  ImageLists lists{.name = "imagefolder", .source = fs::absolute(at.root).lexically_normal().string()};
  Lister lister(request, at);
  if (!lister.flat()) check_class_folders(at.train, request.labels);
  FolderListing train = lister.list(at.train);
  const char* const hint =
      has_more_images_than_folders(at.train) ? "; images without labels train with `ringtape pretrain`" : "";
  RT_CHECK_AS(MissingData, train.images.size() > 0, "imagefolder: no folder in ", at.train, " holds images (",
              kImageEndings, "); expected train/CLASS/IMAGE with test/ or val/ next to train/, or CLASS/IMAGE", hint);
  check_test_folder(at, request.labels);
  lists.classes = train.classes;
  if (!at.val.empty() && !lister.flat()) lists.val = lister.list(at.val, train, at.train);
  if (!at.test.empty() && !lister.flat()) lists.test = lister.list(at.test, train, at.train);
  lists.train = std::move(train.images);
  if (at.test.empty() && !lister.flat()) {
    if (!at.divided()) hold_out_test_images(lists.train, lists.test);
    RT_CHECK_AS(FormatError, lists.test.size() > 0 || !request.labels, at.root,
                ": no class has two images, of which one would be a test image; use train/CLASS and test/CLASS", hint);
  }
  if (!lists.test.images) lists.test = chosen(lists.train, {});
  lister.say();
  Splits out = load_images(lists, options.images, request);
  if (const std::string text = lister.left_out.str(); !text.empty())
    out.notes.insert(out.notes.begin(), concat(at.root, ": not read: ", text));
  return out;
}

}  // namespace ringtape
