// Writes the inputs that fuzzing begins with: seeds DIR makes DIR/TARGET/NAME, a few small good ones for each target.
#include <cstdio>

// after <cstdio>, which it needs
#include <jpeglib.h>
#include <png.h>
#include <tiffio.h>
#include <webp/encode.h>
#include <zlib.h>

#include <cmath>

#include "autograd/create.h"
#include "comm/store/frame.h"
#include "tests/fuzz/target.h"
#include "train/checkpoint/checkpoint.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/pytorch_file.h"
#include "train/run/metrics_log.h"
#include "train/settings/options.h"
#include "train/settings/presets.h"

using namespace ringtape;
namespace fs = std::filesystem;

static fs::path root;

static void seed(const std::string& target, const std::string& name, const std::string& content) {
  fs::create_directories(root / target);
  std::ofstream(root / target / name, std::ios::binary) << content;
}

static void safetensors() {
  const auto add = [](const char* name, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
    fs::create_directories(root / "safetensors");
    write_safetensors(root / "safetensors" / name, tensors, metadata);
  };
  std::vector<NamedTensor> all;
  for (const DType dtype :
       {DType::b8, DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64})
    all.push_back({concat("t.", dtype), zeros({2, 3}, dtype)});
  add("types", all, {});
  add("shapes", {{"scalar", zeros({})}, {"none", zeros({0, 4})}, {"axes", zeros({1, 1, 2, 1, 1, 1, 1, 1})}},
      {{"format", "pt"}});
  add("empty", {}, {});
}

static void pytorch() {
  fs::create_directories(root / "pytorch");
  write_pytorch(root / "pytorch" / "own", {{"x", zeros({2, 3})}, {"y", zeros({}, DType::b8)}}, {{"k", "v"}});
}

static std::string compressed(const std::string& plain) {
  const test::MemoryFolder folder;
  const std::string path = folder.path() + "/gz";
  const gzFile file = gzopen(path.c_str(), "wb9");
  gzwrite(file, plain.data(), unsigned(plain.size()));
  gzclose(file);
  return read_file(path);
}

static void idx() {
  const std::string labels("\0\0\10\1\0\0\0\5\1\2\3\4\5", 13),
      images = std::string("\0\0\10\3\0\0\0\2\0\0\0\3\0\0\0\3", 16) + std::string(18, 'x');
  seed("idx", "labels", '\0' + labels), seed("idx", "images", '\1' + images);
  seed("idx", "labels.gz", '\0' + compressed(labels)), seed("idx", "images.gz", '\1' + compressed(images));
}

static void cifar() {
  const std::string image(3072, 'p');
  seed("cifar", "ten", "\2\7" + image), seed("cifar", "hundred", "\5\1c" + image + "\1a" + image),
      seed("cifar", "none", "\1");
}

static void png() {
  for (const auto& [name, format] :
       std::initializer_list<std::pair<const char*, uint32_t>>{{"grey", PNG_FORMAT_GRAY},
                                                               {"rgb", PNG_FORMAT_RGB},
                                                               {"rgba", PNG_FORMAT_RGBA},
                                                               {"map", PNG_FORMAT_RGB_COLORMAP},
                                                               {"linear", PNG_FORMAT_LINEAR_Y}}) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION, image.width = 7, image.height = 5, image.format = format,
    image.colormap_entries = 4;
    const std::string pixels(PNG_IMAGE_SIZE(image), '\2'), map(PNG_IMAGE_COLORMAP_SIZE(image) + 16, 'c');
    png_alloc_size_t bytes = 4096;
    std::string out(bytes, '\0');
    test::require(png_image_write_to_memory(&image, out.data(), &bytes, 0, pixels.data(), 0, map.data()));
    seed("png", name, out.substr(0, bytes));
  }
}

static void jpeg() {
  for (const auto& [name, space, progressive] :
       std::initializer_list<std::tuple<const char*, J_COLOR_SPACE, bool>>{{"grey", JCS_GRAYSCALE, false},
                                                                           {"rgb", JCS_RGB, false},
                                                                           {"progressive", JCS_RGB, true},
                                                                           {"cmyk", JCS_CMYK, false}}) {
    jpeg_compress_struct info{};
    jpeg_error_mgr errors;
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned char* memory = nullptr;
    unsigned long bytes = 0;
    jpeg_mem_dest(&info, &memory, &bytes);
    info.image_width = 20, info.image_height = 12, info.in_color_space = space;
    info.input_components = space == JCS_GRAYSCALE ? 1 : space == JCS_RGB ? 3 : 4;
    jpeg_set_defaults(&info);
    if (progressive) jpeg_simple_progression(&info);
    jpeg_start_compress(&info, TRUE);
    std::vector<unsigned char> row(size_t(20 * info.input_components));
    while (info.next_scanline < info.image_height) {
      for (size_t i = 0; i < row.size(); ++i) row[i] = uint8_t(i * 7 + info.next_scanline * 13);
      unsigned char* rows = row.data();
      jpeg_write_scanlines(&info, &rows, 1);
    }
    jpeg_finish_compress(&info);
    seed("jpeg", name, std::string(reinterpret_cast<char*>(memory), bytes));
    jpeg_destroy_compress(&info);
    std::free(memory);
  }
}

static void webp() {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 20 * 12 * 4; ++i) pixels.push_back(uint8_t(i * 7 + i / 80 * 13));
  uint8_t* out = nullptr;
  const auto add = [&](const char* name, size_t bytes) {
    seed("webp", name, std::string(reinterpret_cast<char*>(out), bytes));
    WebPFree(out);
  };
  add("lossy", WebPEncodeRGB(pixels.data(), 20, 12, 60, 70, &out));
  add("clear", WebPEncodeRGBA(pixels.data(), 20, 12, 80, 70, &out));
  add("lossless", WebPEncodeLosslessRGB(pixels.data(), 20, 12, 60, &out));
  add("lossless_clear", WebPEncodeLosslessRGBA(pixels.data(), 20, 12, 80, &out));
}

static void tiff() {
  const test::MemoryFolder folder;
  const std::string path = folder.path() + "/tif";
  for (const auto& [name, samples, bits, photometric, compression, tiled] :
       std::initializer_list<std::tuple<const char*, int, int, int, int, bool>>{
           {"rgb", 3, 8, PHOTOMETRIC_RGB, COMPRESSION_NONE, false},
           {"tiled", 3, 8, PHOTOMETRIC_RGB, COMPRESSION_LZW, true},
           {"clear", 4, 8, PHOTOMETRIC_RGB, COMPRESSION_ADOBE_DEFLATE, false},
           {"wide", 1, 16, PHOTOMETRIC_MINISBLACK, COMPRESSION_PACKBITS, false},
           {"jpeg", 3, 8, PHOTOMETRIC_YCBCR, COMPRESSION_JPEG, false},
           {"inks", 4, 8, PHOTOMETRIC_SEPARATED, COMPRESSION_LZW, false},
           {"fax3", 1, 1, PHOTOMETRIC_MINISWHITE, COMPRESSION_CCITTFAX3, false},
           {"fax4", 1, 1, PHOTOMETRIC_MINISWHITE, COMPRESSION_CCITTFAX4, false},
           {"big", 3, 8, PHOTOMETRIC_RGB, COMPRESSION_LZW, false},
           {"map", 1, 4, PHOTOMETRIC_PALETTE, COMPRESSION_NONE, false}}) {
    TIFF* const file = TIFFOpen(path.c_str(), name == std::string("big") ? "w8" : "w");
    TIFFSetField(file, TIFFTAG_IMAGEWIDTH, 20), TIFFSetField(file, TIFFTAG_IMAGELENGTH, 12);
    TIFFSetField(file, TIFFTAG_SAMPLESPERPIXEL, samples), TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, bits);
    TIFFSetField(file, TIFFTAG_PHOTOMETRIC, photometric), TIFFSetField(file, TIFFTAG_COMPRESSION, compression);
    TIFFSetField(file, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    if (compression == COMPRESSION_JPEG) TIFFSetField(file, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    std::vector<uint16_t> map(16, 0x8000);
    if (photometric == PHOTOMETRIC_PALETTE) TIFFSetField(file, TIFFTAG_COLORMAP, map.data(), map.data(), map.data());
    std::vector<uint8_t> bytes(16 * 16 * 4);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * 7 + i / 60 * 13);
    if (tiled) {
      TIFFSetField(file, TIFFTAG_TILEWIDTH, 16), TIFFSetField(file, TIFFTAG_TILELENGTH, 16);
      for (uint32_t x : {0u, 16u}) TIFFWriteTile(file, bytes.data(), x, 0, 0, 0);
    } else {
      TIFFSetField(file, TIFFTAG_ROWSPERSTRIP, 16);
      for (uint32_t y = 0; y < 12; ++y) TIFFWriteScanline(file, bytes.data() + 40 * y, y, 0);
    }
    TIFFClose(file);
    seed("tiff", name, read_file(path));
  }
}

static void bmp() {
  const auto number = [](uint64_t x, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += char(x >> (8 * i));
    return out;
  };
  for (const uint32_t bits : {1u, 4u, 8u, 16u, 24u, 32u}) {
    const std::string map(bits <= 8 ? size_t{4} << bits : 0, 'm'), rows((7 * bits + 31) / 32 * 4 * 5, 'r');
    const std::string header = number(40, 4) + number(7, 4) + number(5, 4) + number(1, 2) + number(bits, 2);
    seed("bmp", concat("bits", bits),
         "BM" + number(0, 8) + number(uint32_t(54 + map.size()), 4) + header + std::string(24, '\0') + map + rows);
  }
  seed("bmp", "masks",
       "BM" + number(0, 8) + number(66, 4) + number(40, 4) + number(7, 4) + number(uint32_t(-5), 4) + number(1, 2) +
           number(16, 2) + number(3, 4) + std::string(20, '\0') + number(0xf800, 4) + number(0x7e0, 4) +
           number(0x1f, 4) + std::string(80, 'r'));
  seed("bmp", "pgm", "P5 # c\n7 5\n255\n" + std::string(35, 'g'));
  seed("bmp", "pgm16", "P5 7 5 1023\n" + std::string(70, '\1')),
      seed("bmp", "ppm", "P6 7 5 99 " + std::string(105, 'p'));
}

static void tar() {
  const auto member = [](const std::string& name, const std::string& content, char type = '0') {
    std::string out(512, '\0'), size(11, '0');
    for (size_t i = 11, left = content.size(); i-- > 0; left >>= 3) size[i] = char('0' + (left & 7));
    out.replace(0, name.size(), name), out.replace(124, 11, size), out.replace(148, 8, 8, ' '), out[156] = type;
    out.replace(257, 8, std::string("ustar\0", 6) + "00");
    unsigned sum = 0;
    for (const char c : out) sum += uint8_t(c);
    for (size_t i = 6; i-- > 0; sum >>= 3) out[148 + i] = char('0' + (sum & 7));
    out[154] = '\0';
    return out + content + std::string((512 - content.size() % 512) % 512, '\0');
  };
  const std::string end(1024, '\0');
  seed("tar", "sample",
       member("a/1.jpg", "image") + member("a/1.cls", "7") + member("a/2.jpg", "i") +
           member("a/2.json", "{\"label\": 3}") + end);
  seed("tar", "kinds",
       member("a/", "", '5') + member("l", "", '1') + member("s", "", '2') + member("p", "", '6') +
           member("f", std::string(600, 'f')) + end);
  seed("tar", "long",
       member("L", std::string(150, 'n') + '\0', 'L') + member("n", "x") +
           member("x", "16 path=a/1.jpg\n10 size=1\n", 'x') + member("short", "y") + end);
  const std::string one = "P5 1 1 255\n1";
  seed("webdataset", "labelled",
       member("0.pgm", one) + member("0.cls", "0") + member("1.pgm", one) + member("1.json", "{\"label\": 1}") + end);
  seed("webdataset", "unlabelled", member("0.pgm", one) + member("1.pgm", one) + end);
}

static void options() {
  TrainOptions method;
  method.execution.threads = 1, method.data.val_size = 100;
  seed("config", "defaults", config_text(method));
  method.method.name = "simclr";
  seed("config", "method", config_text(method));
  for (const Preset& preset : presets()) seed("config", preset.name, preset.text);
  std::string lines;
  for (const auto& [key, value] : weights_metadata({}))
    lines += concat(key.substr(key.find('.') + 1), "=", value, "\n");
  seed("metadata", "defaults", lines);
  seed("metadata", "images", "mean=[0.5,0.25]\ndeviation=[0.125,1]\nclasses=[\"cat\",\"dog\"]\n");
}

static void run() {
  TrainState state;
  state.step = 120, state.epoch = 1, state.batch = 20, state.counters = {5, 7}, state.best = TrainState::Best{100, 0.5};
  state.tally.samples = 640, state.traffic = {1 << 20, 0.5, 0.25},
  state.lengths = {{"metrics.jsonl", 400}, {"metrics.csv", 200}};
  const test::MemoryFolder folder;
  Course course;
  course.steps_per_epoch = 100;
  write_checkpoint(folder.path() + "/c", state, {}, course);
  const std::string text = read_file(folder.path() + "/c/state.json");
  seed("state", "signed", '\1' + text), seed("state", "as_it_is", '\0' + text);
  Metrics m;
  m.split = "train", m.epoch = 1, m.step = 120, m.loss = 0.5, m.top1 = 0.75, m.lr = 1e-3, m.seconds = 2;
  std::string lines = json_line(m) + "\n";
  m.split = "val", m.loss = std::nan("");
  lines += json_line(m) + "\n";
  seed("metrics", "unfinished", lines);
  seed("metrics", "finished",
       lines +
           R"({"split":"summary","seed":1,"epoch":1,"step":120,"loss":0.5,"top1":0.75,"train_s":2,"comm_bytes":9})" +
           "\n");
}

static void folders() {
  std::string parted, whole;
  for (const char* part : {"train", "test"})
    for (const char* name : {"cat/1.png", "cat/2.PNG", "dog/1.jpg"}) parted += concat("g ", part, "/", name, "\n");
  for (int i = 0; i < 11; ++i) whole += concat("g a/", i, ".png\n");
  seed("imagefolder", "parted", parted), seed("imagefolder", "whole", whole);
  seed("imagefolder", "damaged", whole + "b b/1.png\ne b/2.png\nd c\nl l\n");
}

static void jobs() {
  seed("choice", "ranges", "\6ring:0-64K;direct:64K-"), seed("choice", "name", "\1doubling"),
      seed("choice", "many", "\20tree:1-2;ring:3M-4G;two_level");
  seed("place", "torchrun",
       "RANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=10.0.0.1\nMASTER_PORT=29500\n"
       "TORCHELASTIC_USE_AGENT_STORE=True\nTORCHELASTIC_RUN_ID=x\nTORCHELASTIC_RESTART_COUNT=0\n");
  seed("place", "mpirun",
       "OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3\nOMPI_COMM_WORLD_LOCAL_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK="
       "1\nPMIX_NAMESPACE=7\n");
  seed("place", "srun",
       "SLURM_STEP_NUM_TASKS=9\nSLURM_PROCID=8\nSLURM_STEP_NUM_NODES=3\nSLURM_STEP_TASKS_PER_NODE=4(x2),1\nSLURM_"
       "NODEID=2\n"
       "SLURM_LOCALID=0\nSLURM_JOB_ID=5\nSLURM_STEP_ID=0\nSLURM_STEP_NODELIST=node[03-07,9],login\n");
  seed("assignment", "first", "1\t2\t-1\t0\t\n\n1\t-1\t0\t0\ta\tprocess 1\n2\t-1\t0\t1\tb\tprocess 2");
  seed("assignment", "later", "7\t9\t1\t2\tprocess 4 died\n2\t9\t\n3\t12\t1\t0\ta\tprocess 3\n5\t13\t1\t0\t\t");
  using Type = comm::Frame::Type;
  std::string frames;
  uint32_t request = 0;
  for (const Type type :
       {Type::will, Type::wait, Type::add, Type::set, Type::set_once, Type::get, Type::erase, Type::bye})
    frames += comm::encode({.type = type, .request = ++request, .number = 1, .fields = {"a", "b"}});
  seed("frame", "requests", frames);
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: seeds DIR\n"), 2;
  root = argv[1];
  safetensors(), pytorch(), idx(), cifar(), png(), jpeg(), webp(), tiff(), bmp(), tar(), options(), run(), folders(),
      jobs();
}
