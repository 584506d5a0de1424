#include "train/data/imagefolder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <mutex>

#include "core/parallel.h"
#include "train/data/image_file.h"
#include "train/io/look.h"
#include "train/report/progress.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFallbackSide = 32;
constexpr int64_t kMostUnasked = int64_t{4} << 30;  // bytes of all images, if nobody has chosen their size
constexpr size_t kEachTest = 10;  // every tenth image is a test image if there is no folder of test images

struct ImageFiles {
  std::vector<std::string> classes;
  std::vector<std::string> paths;
  std::vector<int64_t> labels;

  void add(const std::string& path, int64_t label) { paths.push_back(path), labels.push_back(label); }
};

// The extension with its dot, in lower case.
std::string ending(const fs::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return end;
}

// Files and folders that are ignored.
struct LeftOut {
  std::map<std::string, int64_t> files;  // by extension
  int64_t loose = 0;                     // images outside the folders of classes
  int64_t folders = 0;                   // folders within classes

  std::string str() const;  // "" if there are none
};

std::string LeftOut::str() const {
  constexpr size_t kShown = 6;
  std::vector<std::pair<int64_t, std::string>> kinds;
  int64_t all = 0, others = 0;
  for (const auto& [end, count] : files)
    all += count, kinds.emplace_back(-count, end.empty() ? "without an extension" : end);
  std::sort(kinds.begin(), kinds.end());
  std::string list, out;
  for (size_t i = 0; i < kinds.size(); ++i)
    if (i < kShown)
      list += concat(i > 0 ? ", " : "", with_commas(-kinds[i].first), " ", kinds[i].second);
    else
      others -= kinds[i].first;
  if (others > 0) list += concat(", ", with_commas(others), " others");
  const auto add = [&](int64_t count, const char* one, const char* many, const std::string& more) {
    if (count > 0) out += concat(out.empty() ? "" : "; ", with_commas(count), " ", count == 1 ? one : many, more);
  };
  add(all, "file that is", "files that are", concat(" neither JPEG nor PNG by name (", list, ")"));
  add(loose, "image", "images", " outside the folders of the classes");
  add(folders, "folder", "folders", " within a class");
  return out;
}

// The wanted entries of a folder, in the byte order of their names. Throws IoError.
template <class F>
std::vector<fs::path> sorted(const fs::path& folder, F&& wanted) {
  std::vector<fs::path> out;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (!entry.path().filename().string().starts_with('.') && wanted(entry)) out.push_back(entry.path());
  } catch (const fs::filesystem_error& e) {
    detail::fail<IoError>(folder.string(), ": cannot read: ", e.code().message());
  }
  std::sort(out.begin(), out.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return out;
}

std::vector<fs::path> class_folders(const fs::path& root, LeftOut& left_out) {
  return sorted(root, [&](const fs::directory_entry& e) {
    const bool folder = e.is_directory();
    if (!folder) is_image_path(e.path()) ? ++left_out.loose : ++left_out.files[ending(e.path())];
    return folder;
  });
}
std::vector<fs::path> images_in(const fs::path& folder, LeftOut& left_out) {
  return sorted(folder, [&](const fs::directory_entry& e) {
    const bool image = e.is_regular_file() && is_image_path(e.path());
    if (!image) e.is_directory() ? ++left_out.folders : ++left_out.files[ending(e.path())];
    return image;
  });
}

ImageFiles list_images(const fs::path& root, LeftOut& left_out) {
  ImageFiles out;
  bool any = false;
  std::string empty;
  for (const fs::path& folder : class_folders(root, left_out)) {
    const std::vector<fs::path> images = images_in(folder, left_out);
    if (images.empty()) empty = folder.string();
    any = any || !images.empty();
    for (const fs::path& image : images) out.add(image.string(), int64_t(out.classes.size()));
    out.classes.push_back(folder.filename().string());
  }
  RT_CHECK_AS(
      MissingData, any, "imagefolder: no folder in ", root.string(),
      " holds .jpg, .jpeg or .png files; expected train/CLASS/IMAGE with test/ or val/ next to train/, or CLASS/IMAGE");
  RT_CHECK_AS(FormatError, empty.empty(), empty,
              ": no .jpg, .jpeg or .png files in this class; remove the folder or fill it");
  return out;
}

std::pair<ImageFiles, ImageFiles> list_both(const fs::path& root, LeftOut& left_out) {
  RT_CHECK_AS(MissingData, is_folder_at(root), "imagefolder: no folder ", root.string(),
              "; --data-dir names it");
  if (is_folder_at(root / "train")) {
    const fs::path held = is_folder_at(root / "test") ? root / "test" : root / "val";
    RT_CHECK_AS(IoError, is_folder_at(held), root.string(),
                ": has train/ but neither test/ nor val/ next to it");
    ImageFiles train = list_images(root / "train", left_out), test = list_images(held, left_out);
    for (int64_t& label : test.labels) {  // numbered as in the training set
      const std::string& name = test.classes[size_t(label)];
      const auto at = std::lower_bound(train.classes.begin(), train.classes.end(), name);
      RT_CHECK_AS(FormatError, at != train.classes.end() && *at == name, (held / name).string(),
                  ": no class of that name in ", (root / "train").string());
      label = at - train.classes.begin();
    }
    test.classes = train.classes;
    return {std::move(train), std::move(test)};
  }
  const ImageFiles all = list_images(root, left_out);
  ImageFiles train{all.classes, {}, {}}, test = train;
  size_t number = 0;  // within the class
  for (size_t i = 0; i < all.paths.size(); ++i) {
    number = i > 0 && all.labels[i] == all.labels[i - 1] ? number + 1 : 1;
    (number % kEachTest == 0 ? test : train).add(all.paths[i], all.labels[i]);
  }
  RT_CHECK_AS(FormatError, !test.paths.empty(), root.string(), ": no class has ", kEachTest,
              " images, of which the last would be a test image; use train/CLASS and test/CLASS");
  return {std::move(train), std::move(test)};
}

// The size of all images; none if they differ.
ImageSize common_size(const ImageFiles& train, const ImageFiles& test) {
  const ImageSize first = read_image_size(train.paths[0]);
  bool alike = true;
  std::mutex mutex;
  for (const ImageFiles* files : {&train, &test})
    parallel_for(int64_t(files->paths.size()), 16, [&](int64_t begin, int64_t end) {
      bool all = true;
      for (int64_t i = begin; i < end && all; ++i) all = read_image_size(files->paths[size_t(i)]) == first;
      const std::lock_guard lock(mutex);
      alike = alike && all;
    });
  return alike ? first : ImageSize{};
}

Dataset load_files(const ImageFiles& files, const fs::path& root, ImageSize size, const std::string& title,
                   bool progress) {
  Progress bar(title, int64_t(files.paths.size()), progress, "images");
  std::mutex drawing;
  int64_t done = 0;
  Dataset set;
  set.name = "imagefolder";
  set.source = fs::absolute(root).lexically_normal().string();
  set.classes = int(files.classes.size());
  set.class_names = files.classes;
  set.labels = from_host(files.labels, {int64_t(files.labels.size())});
  set.images = Tensor({int64_t(files.paths.size()), size.height, size.width, 3}, DType::u8);
  const int64_t bytes = size.height * size.width * 3;
  parallel_for(int64_t(files.paths.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      copy_pixels(read_image_as(files.paths[size_t(i)], size), 3, set.images.data<uint8_t>() + i * bytes);
      const std::lock_guard lock(drawing);
      bar.update(++done);
    }
  });
  return set;
}

}  // namespace

void visit(Fields& f, ImageFolderOptions& o) {
  f("image-size", o.image_size,
    {.help = "resize and crop images to N x N pixels",
     .unit = "N",
     .range = {1, 4096},
     .automatic = "the size of the images if all are equal, else 32",
     .scope = Scope::weights});
}

Splits load_imagefolder(const DataRequest& request) {
  const fs::path root = data_root(request);
  LeftOut left_out;
  const auto [train, test] = list_both(root, left_out);
  if (request.begins) request.begins();
  std::vector<std::string> notes;
  if (const std::string text = left_out.str(); !text.empty())
    notes.push_back(concat(root.string(), ": not read: ", text));
  const int64_t side = request.settings.as<ImageFolderOptions>().image_size;
  ImageSize size = side > 0 ? ImageSize{side, side} : common_size(train, test);
  if (size == ImageSize{}) {
    size = {kFallbackSide, kFallbackSide};
    notes.push_back(concat(root.string(), ": the images have different sizes, all are resized to ", kFallbackSide,
                           " x ", kFallbackSide, "; use --image-size N for N x N"));
  }
  const int64_t number = int64_t(train.paths.size() + test.paths.size()), bytes = number * size.height * size.width * 3;
  RT_CHECK_AS(UsageError, side > 0 || bytes <= kMostUnasked, root.string(), ": ", with_commas(number), " images of ",
              size.width, " x ", size.height, " pixels need ", bytes >> 20,
              " MiB of memory; use --image-size N for N x N");
  Splits out{load_files(train, root, size, "reading training images", request.progress),
             load_files(test, root, size, "reading test images", request.progress), notes};
  const PixelStatistics pixels = pixel_statistics(out.train.images);
  for (Dataset* set : {&out.train, &out.test}) {
    set->mean = pixels.mean;
    set->deviation = pixels.deviation;
    for (float& deviation : set->deviation) deviation = deviation > 0 ? deviation : 1;
  }
  return out;
}

}  // namespace ringtape
