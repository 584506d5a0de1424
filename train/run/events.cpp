#include "train/run/events.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "comm/base/host_name.h"
#include "core/check.h"
#include "train/data/image/png.h"
#include "train/io/json.h"
#include "train/io/protobuf.h"

namespace ringtape {
namespace {

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
    table[i] = c;
  }
  return table;
}();

// Checksums are masked, as TFRecord requires, since the data that they cover may contain checksums itself.
uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

using protobuf::bytes_of;
using protobuf::field;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// A new file name: in containers, two processes may have the same host, process id and second.
File new_file(const RunDir& run, std::string& path) {
  const std::string stem = concat("events.out.tfevents.", int64_t(now()), '.', comm::host_name(), '.', ::getpid(), '.');
  File out;
  for (int number = 0; !out; ++number) {
    path = run.file(concat(stem, number));
    out.reset(std::fopen(path.c_str(), "wbxe"));
    RT_CHECK_AS(IoError, out || errno == EEXIST, path, ": cannot write: ", std::strerror(errno));
  }
  return out;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t c = ~0u;
  for (char b : bytes) c = kCrcTable[(c ^ static_cast<unsigned char>(b)) & 255] ^ c >> 8;
  return ~c;
}

EventFile::EventFile(const RunDir& run, int64_t from) : file_(new_file(run, path_)) {
  // SessionLog.START: earlier values from this step on are ignored. TensorBoard's loader in Python takes the first one
  // of a run for its beginning, and ignores nothing.
  constexpr int64_t kStart = 1;
  record(field(1, now()) + field(3, std::string("brain.Event:2")));  // wall_time, file_version
  // wall_time, step, session_log.
  record(field(1, now()) + field(2, from > 0 ? from + 1 : 0) + field(7, field(1, kStart)));
}

void EventFile::write(const std::string& tag, int64_t step, double value) {
  summary(step, field(1, tag) + field(2, float(value)));  // tag, simple_value
}

void EventFile::image(const std::string& tag, int64_t step, const Tensor& pixels) {
  const std::string image = field(1, pixels.dim(0)) + field(2, pixels.dim(1)) + field(3, pixels.dim(2)) +
                            field(4, encode_png(pixels));  // height, width, colorspace, encoded_image_string
  summary(step, field(1, tag) + field(4, image));          // tag, image
}

void EventFile::histogram(const std::string& tag, int64_t step, std::span<const float> values) {
  constexpr int kBuckets = 30;
  double low = INFINITY, high = -INFINITY, count = 0, sum = 0, squares = 0;
  for (const float x : values)
    if (std::isfinite(x)) {
      low = std::min(low, double(x)), high = std::max(high, double(x));
      count += 1, sum += x, squares += double(x) * x;
    }
  if (count == 0) return;
  const double width = (high - low) / kBuckets;
  std::array<double, kBuckets> counts{};
  for (const float x : values)
    if (std::isfinite(x)) counts[size_t(width > 0 ? std::min((x - low) / width, kBuckets - 1.0) : 0)] += 1;
  std::string limits, packed;
  for (int i = 0; i < kBuckets; ++i) {
    limits += bytes_of(i + 1 < kBuckets ? low + (i + 1) * width : high);
    packed += bytes_of(counts[size_t(i)]);
  }
  summary(step, field(1, tag) + field(5, field(1, low) + field(2, high) + field(3, count) + field(4, sum) +
                                             field(5, squares) + field(6, limits) + field(7, packed)));
}

void EventFile::settings(const Json& values) {
  std::string start;  // SessionStartInfo: hparams, a map to google.protobuf.Value
  for (const auto& [name, value] : values.items()) {
    const std::string text = value.is_number()   ? field(2, value.get<double>())
                             : value.is_string() ? field(3, value.get<std::string>())
                                                 : field(4, int64_t(value == Json(true)));
    start += field(1, field(1, name) + field(2, text));
  }
  const std::string data = field(1, std::string("hparams")) + field(2, field(3, start + field(5, now())));
  summary(0, field(1, std::string("_hparams_/session_start_info")) + field(9, field(1, data)));  // tag, metadata
}

void EventFile::summary(int64_t step, const std::string& value) {
  record(field(1, now()) + field(2, step) + field(5, field(1, value)));  // wall_time, step, summary
}

void EventFile::record(const std::string& event) {
  const std::string length = bytes_of(uint64_t(event.size()));
  const std::string out = length + bytes_of(masked(crc32c(length))) + event + bytes_of(masked(crc32c(event)));
  const bool written =
      std::fwrite(out.data(), 1, out.size(), file_.get()) == out.size() && std::fflush(file_.get()) == 0;
  RT_CHECK_AS(IoError, written, path_, ": cannot write: ", std::strerror(errno));
}

}  // namespace ringtape
