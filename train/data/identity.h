#pragma once
#include <cstdint>
#include <string>

#include "train/data/dataset.h"

namespace ringtape {

// Identifies a data set, so that a resumed run can check that it is the same.
struct DataIdentity {
  int64_t train = 0, test = 0;  // images
  std::string labels;           // CRC-32 of all labels, in hexadecimal
  bool operator==(const DataIdentity&) const = default;
  std::string str() const;  // "3,000 training and 500 test images, CRC-32 of their labels 1c2d3e4f"
};

DataIdentity identity_of(const Splits& data);

}  // namespace ringtape
