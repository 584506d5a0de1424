#include "comm/store/frame.h"

#include <array>

#include "core/check.h"

namespace ringtape::comm {

namespace {

constexpr size_t kHeader = 4 + 1 + 4 + 8 + 2;

struct Count {  // of fields
  size_t least, most;
};
constexpr std::array<Count, 16> kFields = {{
    {1, 1},
    {2, 2},
    {2, 2},
    {1, 1},  // challenge, proof, welcome, refuse
    {2, 2},
    {2, 2},
    {1, 1},
    {1, kMaxFields},  // set, set_once, get, wait
    {0, 0},
    {1, 1},
    {1, 1},
    {2, 2},  // cancel, add, erase, will
    {0, 0},
    {0, 0},
    {0, 2},
    {1, 1},  // beat, bye, reply, error
}};

void put(std::string& out, uint64_t x, int bytes) {
  for (int i = 0; i < bytes; ++i) out += char(x >> (8 * i) & 0xff);
}

// The next `bytes` of `in`, which must exist, as a number.
uint64_t take(std::string_view& in, int bytes) {
  uint64_t x = 0;
  for (int i = 0; i < bytes; ++i) x |= uint64_t(uint8_t(in[size_t(i)])) << (8 * i);
  in.remove_prefix(size_t(bytes));
  return x;
}

Parsed wrong(const char* why) { return {std::nullopt, 0, why}; }

}  // namespace

std::string encode(const Frame& frame) {
  size_t size = kHeader;
  for (const std::string& field : frame.fields) size += 4 + field.size();
  const std::string key = frame.fields.empty() ? "" : frame.fields[0].substr(0, 80);
  RT_CHECK_AS(CommError, size <= kMaxFrame, "store: a message of ", size, " bytes for '", key, "'; at most ", kMaxFrame,
              " are possible; use a collective to send more");
  std::string out;
  out.reserve(size);
  put(out, size - 4, 4);
  put(out, uint64_t(frame.type), 1);
  put(out, frame.request, 4);
  put(out, uint64_t(frame.number), 8);
  put(out, frame.fields.size(), 2);
  for (const std::string& field : frame.fields) {
    put(out, field.size(), 4);
    out += field;
  }
  return out;
}

Parsed parse_frame(std::string_view bytes, size_t limit) {
  if (bytes.size() < 4) return {};
  std::string_view in = bytes;
  const size_t size = take(in, 4) + 4;
  if (size < kHeader) return wrong("its length is less than a header's");
  if (size > limit) return wrong("its length is over the limit");
  if (bytes.size() < size) return {};
  in = in.substr(0, size - 4);
  Frame frame;
  const uint64_t type = take(in, 1);
  if (type >= kFields.size()) return wrong("its type is unknown");
  frame.type = Frame::Type(type);
  frame.request = uint32_t(take(in, 4));
  frame.number = int64_t(take(in, 8));
  const size_t fields = take(in, 2);
  if (fields < kFields[type].least || fields > kFields[type].most) return wrong("it has too few or too many fields");
  for (size_t i = 0; i < fields; ++i) {
    if (in.size() < 4) return wrong("a field is cut off");
    const size_t length = take(in, 4);
    if (length > in.size()) return wrong("a field is longer than the frame");
    frame.fields.emplace_back(in.substr(0, length));
    in.remove_prefix(length);
  }
  if (!in.empty()) return wrong("bytes follow its last field");
  return {std::move(frame), size, nullptr};
}

}  // namespace ringtape::comm
