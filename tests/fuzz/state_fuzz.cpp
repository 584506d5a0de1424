// state.json of a checkpoint: as it is, or, where the first byte is odd, with the checksum that belongs to it.
#include <fmt/core.h>
#include <zlib.h>

#include "tests/fuzz/target.h"
#include "train/checkpoint/checkpoint.h"
#include "train/io/json.h"
#include "train/settings/options.h"

using namespace ringtape;
using namespace ringtape::test;

static std::string with_checksum(std::string_view text) {
  Json json;
  try {
    json = parse_json(text);
  } catch (const FormatError&) {
    return std::string(text);
  }
  if (!json.is_object()) return std::string(text);
  json.erase("crc32");
  const std::string rest = json.text(2);
  json["crc32"] = fmt::format("{:08x}", crc32_z(0, reinterpret_cast<const Bytef*>(rest.data()), rest.size()));
  return json.text(2);
}

RT_FUZZ_TARGET(input) {
  if (input.empty()) return;
  const std::string_view text = input.substr(1);
  const MemoryFolder folder;
  folder.write("state.json", input[0] & 1 ? with_checksum(text) : std::string(text));
  Course course{.changed = [](const Course::Texts& before) { return changed_settings({}, before); }};
  course.steps_per_epoch = 100;
  read_or_refuse([&] {
    const auto json = to_json(check_checkpoint(folder.path(), 120, course));
    require(to_json(parse_train_state(json, "written", course.steps_per_epoch)) == json);
  });
}
