#include "train/data/image_store.h"

#include <algorithm>
#include <mutex>

#include "core/parallel.h"
#include "train/report/progress.h"

namespace ringtape {
namespace {

constexpr int64_t kFallbackSide = 32;

ImageSize size_of(const EncodedImages& images, int64_t i) {
  const std::string content = images.read(i);
  return EncodedImage(content, images.path(i)).size();
}

// The size of all images; none if they differ.
ImageSize common_size(const std::vector<const LabelledImages*>& lists) {
  const EncodedImages& some = *lists[0]->images;
  const ImageSize first = size_of(some, 0);
  bool alike = true;
  std::mutex mutex;
  for (const LabelledImages* list : lists)
    parallel_for(list->size(), 16, [&](int64_t begin, int64_t end) {
      bool all = true;
      for (int64_t i = begin; i < end && all; ++i)
        all = size_of(*list->images, i) == first;
      const std::lock_guard lock(mutex);
      alike = alike && all;
    });
  return alike ? first : ImageSize{};
}

// Decodes the chosen images to u8 (N, H, W, 3).
Tensor decoded(const EncodedImages& images, const std::vector<int64_t>& chosen, ImageSize size, Progress* bar) {
  Tensor out({int64_t(chosen.size()), size.height, size.width, 3}, DType::u8);
  const int64_t bytes = size.height * size.width * 3;
  std::mutex drawing;
  int64_t done = 0;
  parallel_for(int64_t(chosen.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      decode_as(images, chosen[size_t(i)], size, out.data<uint8_t>() + i * bytes);
      if (!bar) continue;
      const std::lock_guard lock(drawing);
      bar->update(++done);
    }
  });
  return out;
}

std::vector<int64_t> evenly(int64_t n, int64_t most) {
  std::vector<int64_t> out;
  const int64_t count = std::min(n, most);
  for (int64_t i = 0; i < count; ++i) out.push_back(i * n / count);
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

void keep_in_memory(Dataset& set, const std::string& title, bool progress) {
  Progress bar(title, set.size(), progress, "images");
  set.images = decoded(*set.encoded, evenly(set.size(), set.size()), {set.decoded[0], set.decoded[1]}, &bar);
}

}  // namespace

void visit(Fields& f, ImageOptions& o) {
  f("image-size", o.size,
    {.help = "resize and crop images to N x N pixels",
     .unit = "N",
     .range = {1, 4096},
     .automatic = "the size of the images if all are equal, else 32",
     .scope = Scope::weights});
  f("image-store", o.store,
    {.help = "where images are: memory (decoded once, N x N), files (decoded for each batch; random crops are cut from "
             "the whole image)",
     .unit = "WHERE",
     .choices = [] { return std::vector<std::string>{"memory", "files"}; },
     .automatic = "memory if all need at most --image-memory, else files"});
  f("image-memory", o.memory,
    {.help = "MiB that decoded images of the whole data set may take to be kept in memory",
     .unit = "N",
     .range = {1, 1e9}});
}

Splits load_images(const ImageLists& lists, const ImageOptions& options, const DataRequest& request) {
  Splits out;
  std::vector<const LabelledImages*> all = {&lists.train, &lists.test};
  if (lists.val) all.push_back(&*lists.val);
  const int64_t side = options.size > 0 ? options.size : request.side;
  ImageSize size = side > 0 ? ImageSize{side, side} : common_size(all);
  if (size == ImageSize{}) {
    size = {kFallbackSide, kFallbackSide};
    out.notes.push_back(concat(lists.source, ": the images have different sizes, all are resized to ", kFallbackSide,
                               " x ", kFallbackSide, "; use --image-size N for N x N"));
  }
  int64_t number = 0;
  for (const LabelledImages* list : all) number += list->size();
  const int64_t bytes = number * size.height * size.width * 3;
  const bool fits = bytes <= options.memory << 20;
  RT_CHECK_AS(UsageError, fits || side > 0, lists.source, ": ", with_commas(number), " images of ", size.width,
              " x ", size.height, " pixels need ", bytes >> 20, " MiB of memory; use --image-size N for N x N");
  out.train = dataset_of(lists, lists.train, size), out.test = dataset_of(lists, lists.test, size);
  if (lists.val) out.val = dataset_of(lists, *lists.val, size);
  if (options.store == "memory" || (options.store.empty() && fits)) {
    keep_in_memory(out.train, "reading training images", request.progress);
    if (out.val) keep_in_memory(*out.val, "reading validation images", request.progress);
    keep_in_memory(out.test, "reading test images", request.progress);
  }
  const PixelStatistics pixels =
      pixel_statistics(
      out.train.is_encoded() ? decoded(*lists.train.images, evenly(out.train.size(), kMeasured), size, nullptr)
                             : out.train.images);
  out.each([&](Dataset& set) {
    set.mean = pixels.mean, set.deviation = pixels.deviation;
    for (float& deviation : set.deviation) deviation = deviation > 0 ? deviation : 1;
  });
  return out;
}

}  // namespace ringtape
