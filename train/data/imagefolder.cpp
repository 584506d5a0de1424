#include "train/data/imagefolder.h"

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "train/io/look.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEachTest = 10;  // every tenth image is a test image if there is no folder of test images
constexpr int64_t kMany = 20'000;  // images whose listing takes time

// The folders of the splits; empty: none.
struct Places {
  std::string root, train, val, test;
};

Places places_of(const ImageFolderOptions& o, const std::string& dir) {
  const fs::path root = dir;
  RT_CHECK_AS(MissingData, is_folder_at(root), "imagefolder: no folder ", dir, "; --data-dir names it");
  const auto named = [&](const char* flag, const std::string& name, const char* usual) -> std::string {
    const std::string path = (root / (name.empty() ? usual : name)).string();
    const bool there = is_folder_at(path);
    RT_CHECK_AS(UsageError, there || name.empty(), "--", flag, " ", name, ": no folder ", path);
    return there ? path : "";
  };
  Places out{dir, named("train-dir", o.train, "train"), named("val-dir", o.val, "val"),
             named("test-dir", o.test, "test")};
  if (out.test.empty() && o.val.empty()) out.test = std::move(out.val), out.val.clear();
  if (out.train.empty()) {
    RT_CHECK_AS(UsageError, o.val.empty() && o.test.empty(), "--val-dir and --test-dir: need --train-dir, or ",
                (root / "train").string());
    out = {dir, dir, "", ""};
  }
  return out;
}

// Lists folders, and says when the images have been found, or when there are many.
class Lister {
 public:
  Lister(const DataRequest& request, const std::string& train) : request_(request) {
    flat_ = !request.labels && has_loose_images(train);
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
    for (int64_t& label : out.images.labels) {
      if (flat_) continue;
      const std::string& name = out.classes[size_t(label)];
      const auto at = std::lower_bound(train.classes.begin(), train.classes.end(), name);
      RT_CHECK_AS(FormatError, at != train.classes.end() && *at == name, (fs::path(root) / name).string(),
                  ": no class of that name in ", train_root);
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

// Moves every tenth image of each class to the test images.
void hold_out(LabelledImages& train, LabelledImages& test) {
  std::vector<int64_t> kept, held;
  int64_t number = 0;  // within the class
  for (int64_t i = 0; i < train.size(); ++i) {
    number = i > 0 && train.labels[size_t(i)] == train.labels[size_t(i - 1)] ? number + 1 : 1;
    (number % kEachTest == 0 ? held : kept).push_back(i);
  }
  test = chosen(train, held), train = chosen(train, kept);
}

}  // namespace

void visit(Fields& f, ImageFolderOptions& o) {
  visit(f, o.images);
  const auto folder = [&](const char* name, std::string& value, const char* help, const char* automatic) {
    f(name, value,
      {.help = help, .unit = "DIR", .automatic = automatic, .scope = Scope::rank, .may_change = true,
       .evaluates = true});
  };
  folder("train-dir", o.train, "folder of the training images, within --data-dir or elsewhere",
         "train if it is there, else --data-dir itself");
  folder("val-dir", o.val, "folder of the validation images", "val if there is also test, else --val-size of the "
                                                              "training images");
  folder("test-dir", o.test, "folder of the test images", "test, else val, else every tenth training image");
}

Splits load_imagefolder(const DataRequest& request) {
  const auto& options = request.settings.as<ImageFolderOptions>();
  const Places at = places_of(options, data_root(request));
  const bool one_folder = at.train == at.root;
  RT_CHECK_AS(IoError, one_folder || !at.test.empty() || !request.labels, at.root,
              ": has train/ but neither test/ nor val/ next to it");
  ImageLists lists{.name = "imagefolder", .source = fs::absolute(at.root).lexically_normal().string()};
  Lister lister(request, at.train);
  FolderListing train = lister.list(at.train);
  RT_CHECK_AS(MissingData, train.images.size() > 0, "imagefolder: no folder in ", at.train, " holds images (",
              kImageEndings, "); expected train/CLASS/IMAGE with test/ or val/ next to train/, or CLASS/IMAGE",
              has_loose_images(at.train) ? "; images without labels train with `ringtape pretrain`" : "");
  lists.classes = train.classes;
  if (!at.val.empty()) lists.val = lister.list(at.val, train, at.train);
  if (!at.test.empty()) lists.test = lister.list(at.test, train, at.train);
  lists.train = std::move(train.images);
  if (at.test.empty() && !lister.flat()) {
    if (one_folder) hold_out(lists.train, lists.test);
    RT_CHECK_AS(FormatError, lists.test.size() > 0 || !request.labels, at.root, ": no class has ", kEachTest,
                " images, of which the last would be a test image; use train/CLASS and test/CLASS");
  }
  lister.say();
  Splits out = load_images(lists, options.images, request);
  if (const std::string text = lister.left_out.str(); !text.empty())
    out.notes.insert(out.notes.begin(), concat(at.root, ": not read: ", text));
  return out;
}

}  // namespace ringtape
