// What a file of weights says about itself: a line "key=value" for each entry.
#include <map>

#include "tests/fuzz/target.h"
#include "train/settings/given.h"
#include "train/weights/trained_on.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  std::map<std::string, std::string> metadata;
  while (!input.empty()) {
    const std::string_view line = next_line(input), key = line.substr(0, line.find('='));
    metadata.emplace("ringtape." + std::string(key), line.substr(std::min(line.size(), key.size() + 1)));
  }
  read_or_refuse([&] {
    std::map<std::string, std::string> written;
    const TrainedOn known = trained_on(metadata, "input");
    add_metadata(written, known);
    require(trained_on(written, "written").class_names == known.class_names);
  });
  TrainOptions options;
  if (!read_or_refuse([&] { apply_settings(options, {read_metadata(metadata, "input")}); })) return;
  TrainOptions again;
  apply_settings(again, {read_metadata(weights_metadata(options), "written")});
  require(weights_metadata(again) == weights_metadata(options));
}
