// PNG files whose chunks have right checksums: else a changed byte would be seen as nothing but that.
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "tests/fuzz/image_target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Mutates, then sets the checksum of every whole chunk: length, type, data, CRC-32 of type and data, from byte 8 on.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  size = LLVMFuzzerMutate(data, size, max_size);
  constexpr size_t kSignature = 8, kAround = 12;
  const auto big_endian = [](const uint8_t* p) {
    return size_t(p[0]) << 24 | size_t(p[1]) << 16 | size_t(p[2]) << 8 | p[3];
  };
  for (size_t at = kSignature; at + kAround <= size;) {
    const size_t length = big_endian(data + at);
    if (length > size - at - kAround) break;
    const auto crc = uint32_t(crc32_z(0, data + at + 4, length + 4));
    for (int i = 0; i < 4; ++i) data[at + 8 + length + size_t(i)] = uint8_t(crc >> (24 - 8 * i));
    at += kAround + length;
  }
  return size;
}

RT_FUZZ_TARGET(input) { ringtape::test::drive_image(input); }
