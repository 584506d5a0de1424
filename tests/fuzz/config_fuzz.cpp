// config.toml: what is read is written so that it reads as the same.
#include "tests/fuzz/target.h"
#include "train/settings/given.h"

using namespace ringtape;
using namespace ringtape::test;

RT_FUZZ_TARGET(input) {
  const MemoryFile file(input);
  TrainOptions options;
  if (!read_or_refuse([&] { apply_settings(options, {read_config(file.path())}); })) return;
  // Not said: a training replaces these by the machine's and the data's own.
  if (options.execution.threads == 0) options.execution.threads = 1;
  if (options.data.val_size < 0) options.data.val_size = 0;
  const std::string text = config_text(options);
  const MemoryFile written(text);
  TrainOptions again;
  again.method.name = options.method.name;
  apply_settings(again, {read_config(written.path())});
  require(config_text(again) == text);
}
