// Folders of images. Each line makes one thing below the folder: "KIND NAME/NAME...", with the kind g (a good image), b
// (a bad one), e (an empty file), d (a folder) or l (a link to the folder itself).
#include "tests/fuzz/target.h"
#include "train/data/files/imagefolder.h"

using namespace ringtape;
using namespace ringtape::test;
namespace fs = std::filesystem;

// 1 x 1, RGB.
static constexpr uint8_t kImage[] = {0x89, 'P',  'N',  'G',  '\r', '\n', 0x1a, '\n', 0,   0,    0,    13,   'I',  'H',
                                     'D',  'R',  0,    0,    0,    1,    0,    0,    0,   1,    8,    2,    0,    0,
                                     0,    0x90, 0x77, 0x53, 0xde, 0,    0,    0,    12,  'I',  'D',  'A',  'T',  0x08,
                                     0xd7, 0x63, 0xf8, 0xcf, 0xc0, 0,    0,    3,    1,   1,    0,    0x18, 0xdd, 0x8d,
                                     0xb0, 0,    0,    0,    0,    'I',  'E',  'N',  'D', 0xae, 0x42, 0x60, 0x82};

RT_FUZZ_TARGET(input) {
  const MemoryFolder folder;
  const std::string_view good(reinterpret_cast<const char*>(kImage), sizeof kImage);
  for (int i = 0; i < 40 && !input.empty(); ++i) {
    const std::string_view line = next_line(input);
    if (line.size() < 3) continue;
    const fs::path name = fs::path(std::string(line.substr(2))).lexically_normal().relative_path();
    bool below = name.string().find('\0') == std::string::npos;
    for (const fs::path& part : name) below = below && part != "..";
    if (!below) continue;
    std::error_code ignored;
    fs::create_directories(fs::path(folder.path()) / name.parent_path(), ignored);
    if (line[0] == 'd') fs::create_directory(fs::path(folder.path()) / name, ignored);
    if (line[0] == 'l') fs::create_directory_symlink(folder.path(), fs::path(folder.path()) / name, ignored);
    if (line[0] == 'e') folder.write(name, "");
    if (line[0] == 'b') folder.write(name, good.substr(0, 50));
    if (line[0] == 'g') folder.write(name, good);
  }
  for (const int64_t side : {0, 4})
    read_or_refuse([&] {
      const Splits set = load_imagefolder({.dir = folder.path(), .settings = ImageFolderOptions{{.size = side}}});
      for (const Dataset* part : {&set.train, &set.test})
        for (int64_t i = 0; i < part->size(); ++i) require(part->labels.data<int64_t>()[i] < part->classes);
    });
}
