#pragma once
#include "train/data/dataset.h"

namespace ringtape {

// CIFAR-10 and CIFAR-100 (with its 100 fine labels) in their binary version (Krizhevsky,
// www.cs.toronto.edu/~kriz/cifar.html), from DIR/cifar-10-batches-bin or DIR/cifar-100-binary, or from DIR itself. A
// record is one label byte (CIFAR-100: the coarse label, then the fine one) and the 32x32 planes R, G, B. Throws
// MissingData, which lists all folders searched and, if the Python version is there, says what to download; IoError if
// a file of the set is missing or cannot be read; FormatError for a file of another size and for labels out of range.
Splits load_cifar10(const DataRequest& request);
Splits load_cifar100(const DataRequest& request);

// One file: its number of records, and the label bytes of a record, of which the last one counts.
struct CifarFile {
  int64_t records = 0, label_bytes = 1;
  int classes = 10;
};
// Reads a file into images (records, 32, 32, 3) and labels (records). Throws IoError and FormatError, as above.
void read_cifar(const std::string& path, const CifarFile& file, uint8_t* images, int64_t* labels);

}  // namespace ringtape
