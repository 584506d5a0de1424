#pragma once
#include <string>

#include "train/loop/execution.h"

// How a device computes in the --precision of a training; auto is auto_precision() (train/run/environment.h).
namespace ringtape {

// For the first line of a training, of settled options: "bf16 by amx", "bf16 converted", "bf16" on a GPU; empty for
// other precisions.
std::string precision_text(const ExecutionOptions& options);

// One line if the precision, of settled options, saves memory but no time on this device; else empty.
std::string precision_note(const ExecutionOptions& options);

}  // namespace ringtape
