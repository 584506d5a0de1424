#include "train/data/files/image_store.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/env.h"
#include "core/parallel.h"
#include "core/part.h"
#include "core/printable.h"
#include "train/data/files/image_cache.h"
#include "train/data/files/image_contents.h"
#include "train/data/image/exif.h"
#include "train/report/progress.h"

namespace ringtape {
namespace {

// Images keep their size if all have one, with sides of at most kMaxOwnSide. Otherwise they become squares of the usual
// size of photographs, or small ones if their shorter sides are less than half of that.
constexpr int64_t kSmallSide = 32, kPhotoSide = 224, kMaxOwnSide = 256;

ImageSize size_of(const EncodedImages& images, int64_t i) {
  const std::string content = images.read(i);
  return EncodedImage(content, images.path(i), images.reading().upright).size();
}

// The sizes of all images, or of kMeasured of each list; those for training are first.
std::vector<ImageSize> sizes_of(const std::vector<LabelledImages*>& lists) {
  std::vector<ImageSize> out;
  for (const LabelledImages* list : lists) {
    const std::vector<int64_t> some = evenly(list->size(), kMeasured);
    const size_t first = out.size();
    out.resize(first + some.size());
    parallel_for(int64_t(some.size()), 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[first + size_t(i)] = size_of(*list->images, some[size_t(i)]);
    });
  }
  return out;
}

// Decodes the chosen images to (N, H, W, 3) bytes.
void decode_all(const EncodedImages& images, const std::vector<int64_t>& chosen, ImageSize size, uint8_t* to,
                Progress* bar) {
  const int64_t bytes = size.height * size.width * 3;
  std::mutex drawing;
  int64_t done = 0;
  parallel_for(int64_t(chosen.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      decode_as(images, chosen[size_t(i)], size, to + i * bytes);
      if (!bar) continue;
      const std::lock_guard lock(drawing);
      bar->update(++done);
    }
  });
}

Tensor decoded(const EncodedImages& images, const std::vector<int64_t>& chosen, ImageSize size, Progress* bar) {
  Tensor out({int64_t(chosen.size()), size.height, size.width, 3}, DType::u8);
  decode_all(images, chosen, size, out.data<uint8_t>(), bar);
  return out;
}

Dataset dataset_of(const ImageLists& lists, const LabelledImages& list, ImageSize size) {
  Dataset out;
  out.name = lists.name, out.source = lists.source;
  out.classes = int(lists.classes.size()), out.class_names = lists.classes;
  out.labels = from_host(list.labels, {list.size()});
  out.encoded = list.images;
  out.decoded = {size.height, size.width, 3};
  return out;
}

// Leaves out of a list what cannot be decoded to side x side pixels (0: at all).
void leave_out_damaged(LabelledImages& list, const char* split, int64_t side, bool progress,
                       std::vector<DamagedImage>& damaged) {
  std::vector<std::string> messages(size_t(list.size()));
  Progress bar(concat("checking ", split, " images"), list.size(), progress, "images");
  std::mutex drawing;
  int64_t done = 0;
  parallel_for(list.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      try {
        const std::string content = list.images->read(i), path = list.images->path(i);
        if (side > 0) decode_image_as(content, path, {side, side}, list.images->reading());
        else decode_image(content, path);
      } catch (const FormatError& e) {
        messages[size_t(i)] = e.what();
      }
      const std::lock_guard lock(drawing);
      bar.update(++done);
    }
  });
  std::vector<int64_t> whole;
  const size_t before = damaged.size();
  for (int64_t i = 0; i < list.size(); ++i) {
    const std::string& message = messages[size_t(i)];
    if (message.empty()) whole.push_back(i);
    else damaged.push_back({split, list.images->name(i), list.images->bytes(i), message});
  }
  if (damaged.size() > before) list = chosen(list, whole);
}

void note_orientation(std::vector<std::string>& notes, const ImageLists& lists) {
  const EncodedImages& images = *lists.train.images;
  const std::vector<int64_t> some = evenly(images.size(), kMeasured);
  std::atomic<int64_t> turned = 0;
  parallel_for(int64_t(some.size()), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) turned += exif_orientation(images.read(some[size_t(i)])) != 1;
  });
  if (turned > 0)
    notes.push_back(concat(lists.source, ": ", with_commas(turned), " of ", with_commas(int64_t(some.size())),
                           " training images are not upright by their Exif data, and are read as stored, as Pillow "
                           "reads them; --exif-orientation turns them"));
}

void note_classes(std::vector<std::string>& notes, const ImageLists& lists, bool predicts) {
  constexpr int64_t kShown = 5;
  if (lists.classes.size() == 1 && predicts)
    notes.push_back(concat(lists.source, ": has one class, '", printable(lists.classes[0]),
                           "', so every prediction will be right"));
  if (lists.classes.empty() || lists.test.size() == 0) return;
  std::vector<bool> untested(lists.classes.size());
  for (const int64_t label : lists.train.labels) untested[size_t(label)] = true;
  for (const int64_t label : lists.test.labels) untested[size_t(label)] = false;
  const int64_t number = std::count(untested.begin(), untested.end(), true);
  if (number == 0) return;
  std::string names;
  int64_t shown = 0;
  for (size_t i = 0; i < untested.size() && shown < kShown; ++i)
    if (untested[i]) names += concat(shown++ > 0 ? ", '" : " '", printable(lists.classes[i]), "'");
  notes.push_back(concat(lists.source, ": no test images of ", number, " of ", untested.size(), " classes:", names,
                         number > shown ? ", ..." : ""));
}

// What is probably not meant so.
void note_levels(std::vector<std::string>& notes, const std::string& source, const PixelStatistics& pixels) {
  constexpr int kLow = 64;
  constexpr const char* kColours[] = {"red", "green", "blue"};
  if (pixels.highest < kLow)
    notes.push_back(concat(source, ": the highest level of the training images is ", pixels.highest,
                           " of 255; of samples of 16 bits the upper 8 are read: scale files of 10, 12 or 14 bits"));
  std::string same;
  for (size_t c = 0; c < pixels.deviation.size(); ++c)
    if (pixels.deviation[c] == 0) same += concat(same.empty() ? "" : " and ", kColours[c]);
  if (!same.empty())
    notes.push_back(concat(source, ": all pixels of the training images have the same ", same,
                           "; it is not divided by its deviation"));
}

void keep_in_memory(Dataset& set, const std::string& title, bool progress) {
  Progress bar(title, set.size(), progress, "images");
  set.images = decoded(*set.encoded, evenly(set.size(), set.size()), {set.decoded[0], set.decoded[1]}, &bar);
}

void keep_on_disk(Dataset& set, const std::string& folder, const std::string& title, bool progress) {
  const ImageSize size{set.decoded[0], set.decoded[1]};
  if (set.size() == 0) return keep_in_memory(set, title, false);
  set.cache = std::make_shared<ImageCache>(set.encoded, size, folder, [&](uint8_t* to) {
    Progress bar(title, set.size(), progress, "images");
    decode_all(*set.encoded, evenly(set.size(), set.size()), size, to, &bar);
  });
  set.images = set.cache->pixels();
  set.contents = std::make_shared<ImageContents>(set.size());
  for (int64_t i = 0; i < set.size(); ++i) set.contents->read(i, set.cache->checksum(i));
}

void check_each_reading(Dataset& set) {
  set.contents = std::make_shared<ImageContents>(set.size());
  set.encoded = std::make_shared<CheckedImages>(set.encoded, set.contents);
}

}  // namespace

void visit(Fields& f, ImageOptions& o) {
  f("image-size", o.size,
    {.help = "resize and crop images to N x N pixels",
     .unit = "N",
     .range = {1, 4096},
     .automatic = "the size of the images if all are equal and at most 256, else 224, or 32 for smaller images",
     .scope = FieldScope::weights});
  f("resize", o.resize,
    {.help = "scale the shorter side of images to N before the middle, --image-size, is cut out",
     .unit = "N",
     .range = {1, 8192},
     .automatic = "that of --image-size",
     .scope = FieldScope::weights});
  f("interpolation", o.interpolation,
    {.help = "what images and random crops are scaled by, as torchvision's Resize and RandomResizedCrop of Pillow's "
             "images",
     .unit = "NAME",
     .choices = interpolations,
     .scope = FieldScope::weights});
  f("image-store", o.store,
    {.help = "where images are: memory (decoded once, N x N), disk (the same, in a file of --image-cache for later "
             "runs), files (decoded for each batch; random crops are cut from the whole image)",
     .unit = "WHERE",
     .choices =
         [] {
           return std::vector<std::string>{"memory", "disk", "files"};
         },
     .automatic = "memory if all need at most --image-memory, else files",
     .evaluates = true});
  f("image-memory", o.memory,
    {.help = "MiB that decoded images of the whole data set may take to be kept in memory",
     .unit = "N",
     .range = {1, 1e9},
     .evaluates = true});
  f("image-cache", o.cache,
    {.help = "folder for the files of --image-store disk",
     .unit = "DIR",
     .automatic = "ringtape in $XDG_CACHE_HOME or ~/.cache",
     .scope = FieldScope::rank,
     .may_change = true,
     .evaluates = true});
  f("skip-damaged", o.skip_damaged,
    {.help = "decode all images at the start and leave out those that are damaged, which the run's list of files names",
     .evaluates = true});
  f("exif-orientation", o.exif_orientation,
    {.help = "turn JPEG, PNG and WebP images as their Exif data say, as Pillow does only by exif_transpose",
     .scope = FieldScope::weights});
}

// The size that all images get: as asked, else their own where they have one.
static ImageSize size_for(const std::vector<LabelledImages*>& all, int64_t side, const std::string& source,
                          std::vector<std::string>& notes) {
  if (side > 0) return {side, side};
  const std::vector<ImageSize> sizes = sizes_of(all);
  const ImageSize first = sizes[0];
  const bool alike = std::ranges::all_of(sizes, [&](const ImageSize& s) { return s == first; });
  if (alike && std::max(first.height, first.width) <= kMaxOwnSide) return first;
  std::vector<int64_t> shorter;
  for (const ImageSize& s : sizes) shorter.push_back(std::min(s.height, s.width));
  const auto median = shorter.begin() + std::ptrdiff_t(shorter.size() / 2);
  std::ranges::nth_element(shorter, median);
  const int64_t n = *median < kPhotoSide / 2 ? kSmallSide : kPhotoSide;
  notes.push_back(concat(source, ": the images have ",
                         alike ? concat(first.width, " x ", first.height, " pixels") : std::string("different sizes"),
                         ", all are resized to ", n, " x ", n, "; use --image-size N for N x N"));
  return {n, n};
}

static std::string store_for(const std::vector<LabelledImages*>& all, const ImageSize& size, bool chosen,
                             const ImageOptions& options, const std::string& source) {
  int64_t number = 0;
  for (const LabelledImages* list : all) number += list->size();
  const int64_t bytes = number * size.height * size.width * 3;
  const bool fits = bytes <= options.memory << 20;
  RT_CHECK_AS(UsageError, fits || chosen || !options.store.empty(), source, ": ", with_commas(number), " images of ",
              size.width, " x ", size.height, " pixels need ", bytes >> 20,
              " MiB of memory; use --image-size N for N x N, or --image-store files");
  return !options.store.empty() ? options.store : fits ? "memory" : "files";
}

static Splits splits_of(const ImageLists& lists, const ImageSize& size) {
  Splits out;
  out.train = dataset_of(lists, lists.train, size), out.test = dataset_of(lists, lists.test, size);
  if (lists.val) out.val = dataset_of(lists, *lists.val, size);
  return out;
}

// Puts the images where they are to be, and finds how their levels are distributed.
static PixelStatistics keep_images(Splits& splits, const std::string& store, const ImageSize& size,
                                   const ImageOptions& options, bool progress) {
  const std::string cache = options.cache.empty() ? env::cache_folder() : options.cache;
  const auto keep = [&](Dataset& set, const std::string& title) {
    if (store == "memory") keep_in_memory(set, title, progress);
    if (store == "disk") keep_on_disk(set, cache, title, progress);
    if (store == "files") check_each_reading(set);
  };
  keep(splits.train, "reading training images");
  if (splits.val) keep(*splits.val, "reading validation images");
  keep(splits.test, "reading test images");
  const Dataset& train = splits.train;
  return pixel_statistics(store == "memory" ? train.images
                                            : decoded(*train.encoded, evenly(train.size(), kMeasured), size, nullptr));
}

Splits load_images(ImageLists lists, const ImageOptions& options, const DataRequest& request) {
  std::vector<LabelledImages*> all = {&lists.train, &lists.test};
  if (lists.val) all.push_back(&*lists.val);
  for (LabelledImages* list : all)
    *list = read_as(*list, {options.exif_orientation, options.resize, interpolation_of(options.interpolation)});
  const int64_t side = options.size > 0 ? options.size : request.side;
  RT_CHECK_AS(UsageError, options.resize == 0 || (side > 0 && options.resize >= side), "--resize ", options.resize,
              ": expected an --image-size of at most that");
  constexpr const char* kSplits[] = {"train", "test", "val"};
  std::vector<DamagedImage> damaged;
  for (size_t i = 0; i < all.size() && (options.skip_damaged || request.check); ++i) {
    const int64_t number = all[i]->size();
    leave_out_damaged(*all[i], kSplits[i], side, request.progress, damaged);
    RT_CHECK_AS(FormatError, all[i]->size() > 0 || number == 0 || request.check, lists.source, ": all ", number,
                " images for `", kSplits[i], "` are damaged, such as ", damaged.back().message);
  }
  std::vector<std::string> notes;
  if (!damaged.empty())
    notes.push_back(concat(lists.source, ": ", with_commas(int64_t(damaged.size())),
                           " damaged images are left out, such as ", damaged[0].message));
  const ImageSize size = request.check ? ImageSize{} : size_for(all, side, lists.source, notes);
  Splits out = splits_of(lists, size);
  out.damaged = std::move(damaged);
  if (request.check) return out;
  note_classes(notes, lists, request.labels);
  if (!options.exif_orientation) note_orientation(notes, lists);
  const std::string store = store_for(all, size, side > 0, options, lists.source);
  const PixelStatistics pixels = keep_images(out, store, size, options, request.progress);
  note_levels(notes, lists.source, pixels);
  out.notes = std::move(notes);
  out.each([&](Dataset& set) {
    set.mean = pixels.mean, set.deviation = pixels.deviation;
    for (float& deviation : set.deviation) deviation = deviation > 0 ? deviation : 1;
  });
  return out;
}

}  // namespace ringtape
