#pragma once
#include <string>

#include "core/dtype.h"
#include "core/fields.h"

namespace ringtape {

struct Arithmetic;  // kernels/arithmetic.h

// How kernels run, and the seed of random numbers.
struct ExecutionOptions {
  std::string device = "auto";
  int64_t threads = 0;            // 0: RINGTAPE_THREADS, else all cores
  int64_t workers = 1;            // threads that prepare batches
  int64_t prefetch_memory = 512;  // MiB of training batches that wait
  int64_t seed = 1;
  std::string precision;  // f32, bf16, f16; tf32: f32, but Arithmetic::tf32; auto: auto_precision(); empty: f32
  bool deterministic = false;
  bool no_graph = false;  // on a GPU, every kernel of every step is launched by itself
};
void visit(Fields& f, ExecutionOptions& o);

DType compute_dtype(const ExecutionOptions& options);  // that ops convert their operands to; not of auto

// Of the process: what these options choose, the rest as it is. For set_arithmetic(), which RunSetup calls.
Arithmetic arithmetic_of(const ExecutionOptions& options);

// Replaces "auto" and 0 by this machine's device, its precision and the thread count; an empty precision by tf32 on a
// GPU whose tensor cores multiply it, as PyTorch's convolutions are, else by f32. Throws DeviceError for a device that
// does not exist.
void settle(ExecutionOptions& options);

// For the first line of a training, of settled options: "bf16 by amx", "bf16 converted", "bf16" or "tf32" on a GPU;
// empty for other precisions.
std::string precision_text(const ExecutionOptions& options);

// One line if the precision, of settled options, saves memory but no time on this device; else empty.
std::string precision_note(const ExecutionOptions& options);

}  // namespace ringtape
