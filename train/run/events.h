#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "train/run/run_dir.h"

namespace ringtape {

// Scalars for TensorBoard: a file of TFRecords, each an Event message (tensorflow/core/util/event.proto) in protobuf's
// encoding.
class EventFile {
 public:
  // Creates a new file events.out.tfevents.TIME.HOST.PID.N. For a run resumed at step `from`, TensorBoard then ignores
  // later steps in earlier files, since they are written again.
  explicit EventFile(const RunDir& run, int64_t from = 0);
  void write(const std::string& tag, int64_t step, double value);  // "val/loss"; throws IoError

 private:
  void record(const std::string& event);
  std::string path_;
  File file_;
};

uint32_t crc32c(std::string_view bytes);  // Castagnoli's polynomial

}  // namespace ringtape
