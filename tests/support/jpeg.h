#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// after <cstdio>, which it needs
#include <jpeglib.h>

namespace ringtape::test {

struct JpegOptions {
  J_COLOR_SPACE from = JCS_RGB;
  bool progressive = false;
  bool adobe = true;  // CMYK: with Adobe's marker; readers take the values as inverted in any case
  int quality = 100;
  int across = 1, down = 1;  // pixels that share a colour: 2, 2 is 4:2:0
};

// A JPEG file of (height, width, channels) bytes.
inline std::string jpeg_file(int width, int height, const std::vector<uint8_t>& bytes, JpegOptions options = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  info.image_width = unsigned(width), info.image_height = unsigned(height);
  info.in_color_space = options.from;
  info.input_components = options.from == JCS_GRAYSCALE ? 1 : options.from == JCS_RGB ? 3 : 4;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  if (options.from == JCS_CMYK) info.write_Adobe_marker = options.adobe;
  if (options.progressive) jpeg_simple_progression(&info);
  for (int i = 0; i < info.num_components; ++i) {
    info.comp_info[i].h_samp_factor = i == 0 ? options.across : 1;
    info.comp_info[i].v_samp_factor = i == 0 ? options.down : 1;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(bytes.data()) + info.next_scanline * unsigned(width * info.input_components);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const std::string file(reinterpret_cast<char*>(out), size);
  std::free(out);
  return file;
}

}  // namespace ringtape::test
