#pragma once
#include <string>

#include "core/fields.h"

namespace ringtape {

// How kernels are executed, and with which random numbers.
struct ExecutionOptions {
  std::string device = "auto";
  int64_t threads = 0;  // 0: RINGTAPE_THREADS, else all cores
  int64_t workers = 1;  // that prepare batches
  int64_t seed = 1;
  std::string precision = "f32";
  bool deterministic = false;
};
void visit(Fields& f, ExecutionOptions& o);

// Device and threads replaced by what they mean on this machine. Throws DeviceError for a device that is not there.
void settle(ExecutionOptions& options);

}  // namespace ringtape
