#include "train/data/identity.h"

#include <fmt/core.h>
#include <zlib.h>

namespace ringtape {

std::string DataIdentity::str() const {
  return concat(with_commas(train), " training and ", with_commas(test), " test images, CRC-32 of their labels ",
                labels);
}

DataIdentity identity_of(const Splits& data) {
  unsigned long crc = 0;
  for (const Dataset* set : {&data.train, &data.test}) {
    const Tensor labels = set->labels.device().type == DeviceType::cpu ? set->labels : set->labels.copy_to(Device{});
    const auto all = labels.span<int64_t>();
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(all.data()), all.size_bytes());
  }
  return {data.train.size(), data.test.size(), fmt::format("{:08x}", crc)};
}

}  // namespace ringtape
