#pragma once
#include "train/data/loader.h"

namespace ringtape {

// A picture of a data set and of what a training makes of it, u8 (H, W, C): a row for each of `rows` samples, evenly
// spread, with the image as it is and then `columns` times as a batch has it, in successive epochs. `config` has its
// augmentation, changes, views, transforms and seed; views of an epoch follow each other. Images of more than
// kSheetSide pixels are shown smaller.
inline constexpr int64_t kSheetSide = 160;
Tensor contact_sheet(const Dataset& data, LoaderConfig config, int64_t rows, int64_t columns);

}  // namespace ringtape
