#pragma once
#include <string>

#include "train/io/safetensors_header.h"
#include "train/model/models.h"

namespace ringtape {

// Compares a network's first weight with that of a file, before the network is made: what a damaged file says of its
// sizes costs no memory. `image_known`: whether the size of the images is; else only the first axis is compared. Throws
// FormatError, beginning with `path`, for another one. Files of other programs have other names: load_backbone() looks.
void check_first_weight(const std::string& path, const SafetensorsHeader& header, const ModelEntry& model,
                        const ModelSpec& spec, bool image_known);

}  // namespace ringtape
