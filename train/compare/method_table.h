#pragma once
#include "train/compare/table.h"

namespace ringtape {

// The runs of one self-supervised method under one strategy and its switches, a seed each.
struct ComparedMethod {
  std::string method;
  ComparedStrategy under;
  bool sync_bn = false;
  // Whether the loss had the outputs of all ranks; nothing where that makes no difference.
  std::optional<bool> gather = {};

  std::string setting() const;  // "ddp on 2 devices, SyncBN, gather"
  std::string name() const;     // "simclr-ddp-2-sync-bn-gather"
};

// One row each. Speed-ups are ratios of the time that the same method took under `single` to the row's.
std::string methods_table(const std::vector<ComparedMethod>& methods);  // Markdown
Json methods_json(const std::vector<ComparedMethod>& methods);

// The tests that the runs' accuracies are of; one, unless some were made with other settings of it.
std::string protocol_of(const std::vector<ComparedMethod>& methods);

}  // namespace ringtape
