// Images per second from the loader with crop (padding 4), flip and normalisation; or, with a number of views, random
// views per second (SimCLR's): JSON on standard output. Wall-clock seconds, and CPU seconds of all threads.
//   loader_bench [DIR with CIFAR-10, else generated images] [batch size] [workers] [seconds] [views] [their blur's
//   probability]
// With a DIR that has train/CLASS/IMAGE and test/CLASS/IMAGE: images decoded for each batch, with a random resized crop
// of 224 x 224, flip and normalisation.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>

#include "core/device.h"
#include "train/data/files/imagefolder.h"
#include "train/data/loader.h"
#include "train/data/sets/shapes.h"

int main(int argc, char** argv) {
  using namespace ringtape;
  using Clock = std::chrono::steady_clock;
  const std::string dir = argc > 1 ? argv[1] : "";
  const int64_t batch_size = argc > 2 ? std::atoll(argv[2]) : 128;
  const int workers = argc > 3 ? std::atoi(argv[3]) : 1;
  const double wanted = argc > 4 ? std::atof(argv[4]) : 1;
  const int views = argc > 5 ? std::atoi(argv[5]) : 0;
  const double blur = argc > 6 ? std::atof(argv[6]) : 0;
  const bool folder = std::filesystem::exists(dir + "/train");
  const Settings settings = folder        ? Settings(ImageFolderOptions{{.size = 224, .store = "files"}})
                            : dir.empty() ? Settings(ShapesOptions{50'000, 1})
                                          : Settings();
  const Splits data = find_dataset(folder        ? "imagefolder"
                                   : dir.empty() ? "shapes"
                                                 : "cifar10")
                          .load({.dir = dir, .settings = settings, .seed = 1});
  const ViewAugmentation view = folder ? ViewAugmentation{.jitter = 0, .gray = 0} : ViewAugmentation{.blur = blur};
  const Loader loader(data.train, all_samples(data.train),
                      {.batch_size = batch_size,
                       .shuffle = true,
                       .seed = 1,
                       .workers = workers,
                       .augmentation = {.pad = 4, .flip = true},
                       .views = std::vector<ViewAugmentation>(size_t(folder ? 1 : views), view)});
  int64_t images = 0, epoch = 0;
  const auto pass = [&] {
    for (const Batch& batch : loader.epoch(epoch++)) images += batch.y.dim(0) * std::max(views, 1);
  };
  pass();  // the first one also allocates memory
  images = 0;
  const auto begin = Clock::now();
  const std::clock_t cpu_begin = std::clock();
  double seconds = 0;
  while (seconds < wanted) {
    pass();
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  const double cpu_seconds = double(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  std::printf("{\"data\":\"%s\",\"batch_size\":%lld,\"workers\":%d,\"threads\":%d,\"views\":%d,",
              data.train.name.c_str(), static_cast<long long>(batch_size), workers, threads(), views);
  std::printf("\"images_per_s\":%.0f,\"images_per_cpu_s\":%.0f}\n", double(images) / seconds,
              double(images) / cpu_seconds);
}
