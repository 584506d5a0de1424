#pragma once
#include <cstdint>
#include <string>

#include "train/data/dataset.h"

namespace ringtape {

// Identifies a data set, so that a resumed run can check that it is the same.
struct DataIdentity {
  int64_t train = 0, test = 0;  // images
  std::string labels, pixels;   // CRC-32 of all labels and of all images, in hexadecimal
  bool operator==(const DataIdentity&) const = default;
  // "3,000 training and 500 test images, CRC-32 of their labels 1c2d3e4f, of their pixels 5a6b7c8d"
  std::string str() const;
};

DataIdentity identity_of(const Splits& data);

}  // namespace ringtape
