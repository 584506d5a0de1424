#include "train/run/events.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/check.h"

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

template <class T>
std::string bytes_of(T value) {
  return {std::bit_cast<std::array<char, sizeof(T)>>(value).data(), sizeof(T)};
}

// Fields of a protobuf message: a key (number * 8 + type), then the value.
std::string varint(uint64_t x) {
  std::string out;
  for (; x >= 0x80; x >>= 7) out += char(x | 0x80);
  return out + char(x);
}
std::string key(int number, int type) { return varint(uint64_t(number * 8 + type)); }
std::string field(int number, int64_t x) { return key(number, 0) + varint(uint64_t(x)); }
std::string field(int number, double x) { return key(number, 1) + bytes_of(x); }
std::string field(int number, float x) { return key(number, 5) + bytes_of(x); }
std::string field(int number, const std::string& x) { return key(number, 2) + varint(x.size()) + x; }

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// A new file name: in containers, two processes may have the same host, process id and second.
File new_file(const RunDir& run, std::string& path) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const std::string stem =
      concat("events.out.tfevents.", int64_t(now()), '.', std::string_view(host), '.', ::getpid(), '.');
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
  constexpr int64_t kStart = 1;  // SessionLog.START: earlier values from this step on are ignored
  record(field(1, now()) + field(3, std::string("brain.Event:2")));  // wall_time, file_version
  // wall_time, step, session_log.
  if (from > 0) record(field(1, now()) + field(2, from + 1) + field(7, field(1, kStart)));
}

void EventFile::write(const std::string& tag, int64_t step, double value) {
  const std::string scalar = field(1, tag) + field(2, float(value));      // Summary.Value: tag, simple_value
  record(field(1, now()) + field(2, step) + field(5, field(1, scalar)));  // wall_time, step, summary
}

void EventFile::record(const std::string& event) {
  const std::string length = bytes_of(uint64_t(event.size()));
  const std::string out = length + bytes_of(masked(crc32c(length))) + event + bytes_of(masked(crc32c(event)));
  const bool written =
      std::fwrite(out.data(), 1, out.size(), file_.get()) == out.size() && std::fflush(file_.get()) == 0;
  RT_CHECK_AS(IoError, written, path_, ": cannot write: ", std::strerror(errno));
}

}  // namespace ringtape
