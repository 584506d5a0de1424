// metrics.jsonl, read for a resumed run and for a comparison of finished ones.
#include "tests/fuzz/target.h"
#include "train/compare/finished_run.h"
#include "train/run/metrics_log.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  const MemoryFolder folder;
  const std::string path = folder.write("metrics.jsonl", input);
  read_or_refuse([&] {
    for (const Metrics& m : read_metrics(path)) require(!json_line(m).empty());
  });
  read_or_refuse([&] { read_finished_run(folder.path()); });
}
