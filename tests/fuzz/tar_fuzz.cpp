// Tar archives whose headers have right checksums: else a changed byte would be seen as nothing but that.
#include <set>

#include "tests/fuzz/tar_target.h"
#include "tests/fuzz/target.h"
#include "train/data/files/tar_index.h"

using namespace ringtape;
using namespace ringtape::test;

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
