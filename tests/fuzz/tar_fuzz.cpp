// Tar archives whose headers have right checksums: else a changed byte would be seen as nothing but that.
#include <set>

#include "tests/fuzz/target.h"
#include "train/data/tar_index.h"

using namespace ringtape;
using namespace ringtape::test;

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

RT_FUZZ_TARGET(input) {
  const MemoryFile file(input);
  read_or_refuse([&] {
    const TarIndex index = index_tar(file.path());
    std::set<std::string_view> names;
    for (const TarMember& m : index.members) {
      require(m.offset >= 512 && m.size >= 0 && m.offset + m.size <= int64_t(input.size()));
      require(names.insert(m.name).second && m.name.find("../") != 0 && m.name[0] != '/');
    }
    const TarSamples found = tar_samples(index, file.path());
    for (const TarSample& s : found.samples) {
      require(s.image >= 0 && s.image < int64_t(index.members.size()) && s.label < int64_t(index.members.size()));
      if (s.label < 0) continue;
      const TarMember& m = index.members[size_t(s.label)];
      read_or_refuse(
          [&] { require(tar_label(m, input.substr(size_t(m.offset), size_t(m.size)), "a label") <= INT32_MAX); });
    }
  });
}
