// Data sets of tar archives: the input is the archive of training images, and that of test images.
#include "tests/fuzz/tar_target.h"
#include "tests/fuzz/target.h"
#include "train/data/files/webdataset.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  const MemoryFolder folder;
  for (const char* name : {"a.tar", "test.tar"}) folder.write(name, input);
  for (const bool labels : {true, false})
    read_or_refuse([&] {
      const WebDatasetOptions options{.images = {.size = 4, .store = "memory"}};
      const Splits set = load_webdataset({.dir = folder.path(), .settings = options, .labels = labels});
      for (const Dataset* part : {&set.train, &set.test})
        for (int64_t i = 0; i < part->size() && part->classes > 0; ++i)
          require(part->labels.data<int64_t>()[i] < part->classes);
    });
}
