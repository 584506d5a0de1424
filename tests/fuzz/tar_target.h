#pragma once
#include <algorithm>
#include <cstdint>
#include <string_view>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Mutates, then sets the checksum of every block that says "ustar".
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  size = LLVMFuzzerMutate(data, size, max_size);
  for (size_t at = 0; at + 512 <= size; at += 512) {
    if (std::string_view(reinterpret_cast<char*>(data) + at + 257, 5) != "ustar") continue;
    unsigned sum = 0;
    std::fill_n(data + at + 148, 8, uint8_t{' '});
    for (size_t i = 0; i < 512; ++i) sum += data[at + i];
    for (int i = 5; i >= 0; --i, sum >>= 3) data[at + 148 + size_t(i)] = uint8_t('0' + (sum & 7));
    data[at + 154] = 0;
  }
  return size;
}
