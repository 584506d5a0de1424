#pragma once
#include "train/data/dataset.h"

namespace ringtape {

// MNIST and the sets published in its format: four idx files, gz or plain, in the folder itself, in its MNIST/raw (or
// FashionMNIST/raw), as torchvision stores them, or in its subfolder with the set's name. Both "-idx3-" and ".idx3-"
// are recognised. Throws MissingData, which lists all folders searched; IoError if a file of the set is missing or
// cannot be read; FormatError for files that do not match each other.
Splits load_mnist(const DataRequest& request);
Splits load_fashion_mnist(const DataRequest& request);

}  // namespace ringtape
