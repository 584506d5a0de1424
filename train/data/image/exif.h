#pragma once
#include <string_view>

namespace ringtape {

// How an image is to be turned to be seen upright, 1 to 8 as in TIFF, by the Exif data of a JPEG, PNG or WebP file, in
// PNG also as ImageMagick's text, and if they do not say it by XMP, as Pillow 13 finds it; 1 if nothing does.
int exif_orientation(std::string_view content);

}  // namespace ringtape
