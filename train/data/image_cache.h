#pragma once
#include <functional>
#include <string>

#include "core/tensor.h"
#include "train/data/encoded_images.h"

namespace ringtape {

// The images of a set, decoded to one size and kept in a file in `folder`: u8 (N, H, W, 3), a part of the file that is
// mapped into memory, so that the system reads what is needed and forgets it again. Must not be written. If no file
// there belongs to the same images (by path, size and the time of the last change of content or inode), `fill` decodes
// them all into the memory that it gets, and a file is written, whole or not at all; other processes that need the same
// one wait for it, by a lock on FILE.lock, and what killed ones left of it is removed. Throws IoError with the path,
// also if the disk is full; UsageError for an empty name of the folder.
Tensor cached_images(const EncodedImages& images, ImageSize size, const std::string& folder,
                     const std::function<void(uint8_t* to)>& fill);

}  // namespace ringtape
