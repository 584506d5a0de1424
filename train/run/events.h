#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "train/io/json.h"
#include "train/run/run_dir.h"

namespace ringtape {

// Scalars, images, histograms and settings for TensorBoard: a file of TFRecords, each an Event message
// (tensorflow/core/util/event.proto) in protobuf's encoding. Throws IoError.
class EventFile {
 public:
  // Creates a new file events.out.tfevents.TIME.HOST.PID.N. For a run resumed at step `from`, TensorBoard then ignores
  // later steps in earlier files, since they are written again.
  explicit EventFile(const RunDir& run, int64_t from = 0);
  void write(const std::string& tag, int64_t step, double value);                       // "val/loss"
  void image(const std::string& tag, int64_t step, const Tensor& pixels);               // as for encode_png()
  void histogram(const std::string& tag, int64_t step, std::span<const float> values);  // without those not finite
  // The run's settings, as TensorBoard's table of hyper-parameters has them: numbers, texts, true and false by name.
  void settings(const Json& values);

 private:
  void record(const std::string& event);
  void summary(int64_t step, const std::string& value);
  std::string path_;
  File file_;
};

uint32_t crc32c(std::string_view bytes);  // Castagnoli's polynomial

}  // namespace ringtape
