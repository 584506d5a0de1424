#pragma once
#include "train/data/dataset.h"

namespace ringtape {

// CIFAR-10 and CIFAR-100 (with its 100 fine labels) in their binary version (Krizhevsky,
// www.cs.toronto.edu/~kriz/cifar.html): in DIR/cifar-10-batches-bin or DIR/cifar-100-binary, or in DIR itself. A record
// is one label byte (CIFAR-100: the coarse label, then the fine one) and the 32x32 planes R, G, B. Throws MissingData
// naming every place that was looked at, and what to get where the Python version lies there; IoError for a set of
// which a file is missing or cannot be read; FormatError for a file of another size and labels out of range.
Splits load_cifar10(const DataRequest& request);
Splits load_cifar100(const DataRequest& request);

// One file: so many records, of that many label bytes, of which the last counts.
struct CifarFile {
  int64_t records = 0, label_bytes = 1;
  int classes = 10;
};
// To images, (records, 32, 32, 3), and labels, (records). Throws IoError and FormatError, as above.
void read_cifar(const std::string& path, const CifarFile& file, uint8_t* images, int64_t* labels);

}  // namespace ringtape
