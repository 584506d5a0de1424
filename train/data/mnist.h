#pragma once
#include "train/data/dataset.h"

namespace ringtape {

// MNIST and the sets published in its form: four idx files, gz or plain, in the folder itself, in its
// MNIST/raw (or FashionMNIST/raw), as torchvision lays them, or in its subfolder of the set's name. "-idx3-"
// and ".idx3-" are both understood. Throws MissingData naming every place that was looked at, IoError for
// a set of which a file is missing or cannot be read, FormatError for files that do not fit together.
Splits load_mnist(const DataRequest& request);
Splits load_fashion_mnist(const DataRequest& request);

}  // namespace ringtape
