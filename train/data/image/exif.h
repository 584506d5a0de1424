#pragma once
#include <string_view>

namespace ringtape {

// How an image is to be turned to be seen upright, 1 to 8 as in TIFF, by the Exif data of a JPEG, PNG or WebP file; 1
// if it has none.
int exif_orientation(std::string_view content);

}  // namespace ringtape
