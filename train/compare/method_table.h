#pragma once
#include "train/compare/table.h"

namespace ringtape {

// The runs of one self-supervised method with one strategy and one setting of its switches, one run per seed.
struct ComparedMethod {
  std::string method;
  ComparedStrategy under;
  bool sync_bn = false;
  // Whether the loss used the outputs of all ranks; empty if that makes no difference.
  std::optional<bool> gather = {};

  std::string setting() const;  // "ddp on 2 devices, SyncBN, gather"
  std::string name() const;     // "simclr-ddp-2-sync-bn-gather"
};

// One row per entry. Speed-up: the time of the same method with `single` divided by the row's time.
Table methods_table(const std::vector<ComparedMethod>& methods);
Json methods_json(const std::vector<ComparedMethod>& methods);

// The test protocols of the runs' accuracies: one, unless runs had different test settings.
std::string protocol_of(const std::vector<ComparedMethod>& methods);

}  // namespace ringtape
