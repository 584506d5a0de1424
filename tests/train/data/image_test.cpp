// Image files and folders of images: decoding and refusal; and downloading published data sets, without a network.
#include <gtest/gtest.h>
#include <png.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "tests/support/jpeg.h"
#include "tests/support/support.h"
#include "train/data/dataset.h"
#include "train/data/files/imagefolder.h"
#include "train/data/image/image_file.h"
#include "train/data/sets/download.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/process.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::message_of;

void write_jpeg(const fs::path& path, int width, int height, const std::vector<uint8_t>& bytes,
                test::JpegOptions options = {}) {
  write_file(path.string(), test::jpeg_file(width, height, bytes, options));
}

void write_png(const fs::path& path, int width, int height, unsigned format, const std::vector<uint8_t>& bytes) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = unsigned(width), image.height = unsigned(height), image.format = format;
  ASSERT_TRUE(png_image_write_to_file(&image, path.c_str(), 0, bytes.data(), 0, nullptr));
}

// Smooth, so that JPEG changes little: channel c of pixel (x, y) of a picture of `kind`.
uint8_t pixel(int x, int y, int c, int kind = 0) { return uint8_t(20 + 4 * x + 3 * y + 25 * c + 30 * kind); }
std::vector<uint8_t> picture(int width, int height, int channels, int kind = 0) {
  std::vector<uint8_t> out;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) out.push_back(pixel(x, y, c, kind));
  return out;
}

void write(const fs::path& path, const std::string& content) { write_file(path.string(), content); }

class ImageTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_image_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Expects f(x, y, c) for each pixel, within the tolerance.
  template <class F> void expect_image(const fs::path& path, int width, int height, int tolerance, F&& f) {
    SCOPED_TRACE(path);
    EXPECT_EQ(read_image_size(path.string()), (ImageSize{height, width}));
    const Image image = read_image(path.string());
    ASSERT_EQ(image.size, (ImageSize{height, width}));
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x)
        for (int c = 0; c < 3; ++c)
          ASSERT_NEAR(image.rgb[size_t((y * width + x) * 3 + c)], f(x, y, c), tolerance)
              << "at " << x << ", " << y << ", " << c;
  }
  std::string refused(const std::string& content) {
    const std::string path = (folder_ / "refused.jpg").string();
    write_file(path, content);
    const std::string message = message_of<FormatError>([&] { read_image(path); });
    EXPECT_MENTIONS(message, path);
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }
  Splits load(const fs::path& folder, int64_t side = 0) {
    return find_dataset("imagefolder").load({.dir = folder.string(), .settings = ImageFolderOptions{{.size = side}}});
  }

  fs::path folder_;
};

TEST_F(ImageTest, EveryKindOfFileBecomesRgb) {
  const auto colour = [](int x, int y, int c) { return pixel(x, y, c); };
  const auto grey = [](int x, int y, int) { return pixel(x, y, 0); };
  const fs::path jpg = folder_ / "a.jpg", png = folder_ / "a.png";
  write_jpeg(jpg, 19, 13, picture(19, 13, 3));
  expect_image(jpg, 19, 13, 4, colour);
  write_jpeg(jpg, 19, 13, picture(19, 13, 3), {.progressive = true});
  expect_image(jpg, 19, 13, 4, colour);
  write_jpeg(jpg, 19, 13, picture(19, 13, 1), {.from = JCS_GRAYSCALE});
  expect_image(jpg, 19, 13, 3, grey);
  for (const bool adobe : {true, false}) {
    write_jpeg(jpg, 19, 13, picture(19, 13, 4), {.from = JCS_CMYK, .adobe = adobe});
    expect_image(jpg, 19, 13, 4, [](int x, int y, int c) { return pixel(x, y, c) * pixel(x, y, 3) / 255; });
  }
  write_png(png, 19, 13, PNG_FORMAT_RGB, picture(19, 13, 3));
  expect_image(png, 19, 13, 0, colour);
  write_png(png, 19, 13, PNG_FORMAT_GRAY, picture(19, 13, 1));
  expect_image(png, 19, 13, 0, grey);
  write_png(png, 19, 13, PNG_FORMAT_RGBA, picture(19, 13, 4));
  expect_image(png, 19, 13, 0, colour);
}

TEST_F(ImageTest, DamagedFilesAreRefusedWithTheReason) {
  const std::string jpg = (folder_ / "a.jpg").string(), png = (folder_ / "a.png").string();
  for (bool progressive : {false, true}) {
    write_jpeg(jpg, 64, 64, picture(64, 64, 3), {.progressive = progressive});
    const std::string good = read_file(jpg);
    EXPECT_MENTIONS(refused(good.substr(0, good.size() / 2)), "damaged JPEG data (Premature end of JPEG file)");
    EXPECT_MENTIONS(refused(good.substr(0, 30)), "damaged JPEG data (");
    std::string flipped = good;
    for (size_t i = good.size() / 2; i < good.size() / 2 + 40; ++i) flipped[i] = '\xff';
    EXPECT_MENTIONS(refused(flipped), "damaged JPEG data (");
  }
  write_png(png, 64, 64, PNG_FORMAT_RGB, picture(64, 64, 3));
  const std::string good = read_file(png);
  EXPECT_MENTIONS(refused(good.substr(0, good.size() / 2)), "damaged PNG data (");
  EXPECT_MENTIONS(refused(good.substr(0, 12)), "damaged PNG data (");
  std::string flipped = good;
  flipped[good.size() / 2] = char(flipped[good.size() / 2] ^ 4);
  EXPECT_MENTIONS(refused(flipped), "damaged PNG data (");
  EXPECT_MENTIONS(refused("<html>404</html>"), "no image (it begins like none of JPEG, PNG");
  EXPECT_MENTIONS(refused(""), ": is empty; expected an image");
  EXPECT_THROW(read_image((folder_ / "absent.jpg").string()), IoError);
}

TEST_F(ImageTest, HugeImagesAreRefusedBeforeMemoryIsTaken) {
  const std::string jpg = (folder_ / "a.jpg").string(), png = (folder_ / "a.png").string();
  write_jpeg(jpg, 8, 8, picture(8, 8, 3));
  std::string content = read_file(jpg);
  const size_t frame = content.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (size_t i : {5, 6, 7, 8}) content[frame + i] = '\xf0';  // height and width: 61,680 each
  EXPECT_MENTIONS(refused(content), "61680 x 61680 pixels; at most 67108864 are supported");
  const int side = 10'001;  // of zeros, a few KB
  write_png(png, side, side, PNG_FORMAT_GRAY, std::vector<uint8_t>(size_t(side) * side));
  EXPECT_MENTIONS(refused(read_file(png)), "10001 x 10001 pixels");
}

TEST_F(ImageTest, ResizingAveragesAndKeepsConstants) {
  Image image{{60, 90}, picture(90, 60, 3)};
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = uint8_t(i % 3 * 100 + 7);
  for (ImageSize size : {ImageSize{20, 30}, ImageSize{7, 11}, ImageSize{90, 61}, ImageSize{1, 1}}) {
    const Image small = resized(image, size);
    for (size_t i = 0; i < small.rgb.size(); ++i) ASSERT_EQ(small.rgb[i], i % 3 * 100 + 7);
  }
  // A step from 0 to 200 between columns 2 and 3: half the size gives a symmetric edge, and the mean stays.
  Image step{{4, 6}, std::vector<uint8_t>(72)};
  for (size_t i = 0; i < 72; ++i) step.rgb[i] = i / 3 % 6 < 3 ? 0 : 200;
  const Image half = resized(step, {2, 3});
  EXPECT_EQ((std::vector<int>{half.rgb[0], half.rgb[3], half.rgb[6]}), (std::vector<int>{0, 100, 200}));
  const Image cut = resized_and_cropped(step, 4);
  EXPECT_EQ(cut.size, (ImageSize{4, 4}));
  EXPECT_EQ((std::vector<int>{cut.rgb[0], cut.rgb[3], cut.rgb[6], cut.rgb[9]}), (std::vector<int>{0, 0, 200, 200}));
}

TEST_F(ImageTest, AFolderOfTrainAndTestImages) {
  for (const char* held : {"test", "val"}) {
    const fs::path root = folder_ / held;
    for (const std::string split : {"train", held}) {
      int kind = 0;
      for (const char* name : {"b", "a", "B"}) {  // sorted by bytes: B a b
        if (split != "train" && name == std::string("a")) continue;
        const fs::path folder = root / split / name;
        fs::create_directories(folder);
        write_png(folder / "2.PNG", 9, 7, PNG_FORMAT_RGB, picture(9, 7, 3, kind));
        write_jpeg(folder / "1.jpeg", 9, 7, picture(9, 7, 3, kind));
        write(folder / "notes.txt", "no image");
        ++kind;
      }
    }
    const Splits set = load(root);
    EXPECT_EQ(set.train.class_names, (std::vector<std::string>{"B", "a", "b"}));
    EXPECT_EQ(set.train.images.shape(), (Shape{6, 7, 9, 3}));  // all have the same size
    EXPECT_EQ(test::values(set.train.labels), (std::vector<double>{0, 0, 1, 1, 2, 2}));
    EXPECT_EQ(test::values(set.test.labels), (std::vector<double>{0, 0, 2, 2}));
    EXPECT_EQ(set.train.images.data<uint8_t>()[189 + 4], pixel(1, 0, 1, 2));  // B/2.PNG
    EXPECT_EQ(set.test.mean, set.train.mean);
    double sum = 0;
    for (int64_t i = 0; i < set.train.images.size(); i += 3) sum += set.train.images.data<uint8_t>()[i] / 255.0;
    EXPECT_NEAR(set.train.mean[0], sum / (6 * 63), 1e-5);
    EXPECT_EQ(load(root, 4).test.images.shape(), (Shape{4, 4, 4, 3}));
    write_png(root / "train/a/3.png", 40, 50, PNG_FORMAT_RGB, picture(40, 50, 3));
    EXPECT_EQ(load(root).train.images.shape(), (Shape{7, 32, 32, 3}));
  }
  fs::create_directories(folder_ / "test/test/c");
  write_png(folder_ / "test/test/c/1.png", 9, 7, PNG_FORMAT_RGB, picture(9, 7, 3));
  EXPECT_MENTIONS(message_of<FormatError>([&] { load(folder_ / "test"); }), "no class of that name in");
  fs::create_directories(folder_ / "val/train/empty");
  EXPECT_MENTIONS(message_of<FormatError>([&] { load(folder_ / "val"); }), "train/empty: no images (.jpg");
  fs::remove_all(folder_ / "val/val"), fs::remove_all(folder_ / "val/train/empty");
  EXPECT_MENTIONS(message_of<IoError>([&] { load(folder_ / "val"); }), "neither test/ nor val/");
}

TEST_F(ImageTest, AFolderWithoutSplitsHoldsEveryTenthImageForTheTest) {
  for (const char* name : {"x", "y"}) {
    fs::create_directories(folder_ / name);
    for (int i = 0; i < 12; ++i)
      write_png(folder_ / name / concat(10 + i, ".png"), 5, 5, PNG_FORMAT_RGB, picture(5, 5, 3, i % 4));
  }
  const Splits set = load(folder_);
  EXPECT_EQ(set.train.size(), 22);
  EXPECT_EQ(test::values(set.test.labels), (std::vector<double>{0, 1}));
  EXPECT_EQ(set.test.images.data<uint8_t>()[0], pixel(0, 0, 0, 9 % 4));
  write(folder_ / "x/19.png", "damaged");
  EXPECT_MENTIONS(message_of<FormatError>([&] { load(folder_); }), "x/19.png: no image");
  for (const char* name : {"x", "y"})
    for (int i = 1; i < 12; ++i) fs::remove(folder_ / name / concat(10 + i, ".png"));
  EXPECT_MENTIONS(message_of<FormatError>([&] { load(folder_); }), "no class has two images");
  EXPECT_MENTIONS(message_of<MissingData>([&] { load(folder_ / "absent"); }), "no folder");
  EXPECT_MENTIONS(message_of<MissingData>([&] { load(folder_ / "x"); }), "expected train/CLASS/IMAGE");
}

// Downloads with curl, from a folder of this machine.
class DownloadTest : public ImageTest {
 protected:
  void SetUp() override {
    ImageTest::SetUp();
    fs::create_directories(folder_ / "there/set");
    write(folder_ / "there/set/data.bin", std::string(100'000, 'x'));
    ASSERT_EQ(
        run_program({"tar", "-czf", (folder_ / "there/set.tar.gz").string(), "-C", (folder_ / "there").string(), "set"})
            .code,
        0);
    const std::string path = (folder_ / "there/set.tar.gz").string();
    sha256_ = sha256_of(path);
    archive_ = {"set", "file:///nowhere/", "set.tar.gz", int64_t(fs::file_size(path)), sha256_.c_str(), "set", "",
                true};
  }
  bool get(const PublishedFile& file) {
    return download(file, here(), "file://" + (folder_ / "there").string(), false);
  }
  std::string here() const { return (folder_ / "here").string(); }
  std::set<std::string> entries() const {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(here())) out.insert(entry.path().filename().string());
    return out;
  }
  std::string sha256_;
  PublishedFile archive_;
};

TEST_F(DownloadTest, AnArchiveIsFetchedCheckedAndUnpackedOnce) {
  write(folder_ / "abc", "abc");
  const char* const digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-2
  EXPECT_EQ(sha256_of((folder_ / "abc").string()), digest);
  ASSERT_EQ(run_program({"gzip", "-1", "-k", (folder_ / "abc").string()}).code, 0);
  EXPECT_EQ(sha256_of_unpacked((folder_ / "abc.gz").string()), digest);
  EXPECT_TRUE(get(archive_));
  EXPECT_EQ(fs::file_size(here() + "/set/data.bin"), 100'000u);
  EXPECT_EQ(entries(), (std::set<std::string>{"set", "set.tar.gz"}));
  EXPECT_FALSE(get(archive_));
  fs::remove_all(here() + "/set");  // the archive exists: nothing is downloaded
  fs::remove_all(folder_ / "there");
  EXPECT_TRUE(get(archive_));
  EXPECT_EQ(fs::file_size(here() + "/set/data.bin"), 100'000u);
}

TEST_F(DownloadTest, AFileGoesToItsFolderAndIsResumed) {
  const std::string content = read_file((folder_ / "there/set.tar.gz").string());
  const PublishedFile file{"set", "file:///nowhere/", "set.tar.gz", int64_t(content.size()), sha256_.c_str(), "below"};
  fs::create_directories(here() + "/below");
  write(here() + "/below/set.tar.gz.part", content.substr(0, content.size() / 2));
  EXPECT_TRUE(get(file));
  EXPECT_EQ(read_file(here() + "/below/set.tar.gz"), content);
  EXPECT_FALSE(fs::exists(here() + "/below/set.tar.gz.part"));
  fs::rename(here() + "/below/set.tar.gz", here() + "/below/set.tar.gz.part");  // complete, but not renamed yet
  fs::remove_all(folder_ / "there");
  EXPECT_TRUE(get(file));
  EXPECT_FALSE(get(file));
}

TEST_F(DownloadTest, AnotherContentIsDeletedAndNothingIsLeftHalfWritten) {
  PublishedFile other = archive_;
  const std::string zeros(64, '0');
  other.sha256 = zeros.c_str();
  const std::string message = message_of<FormatError>([&] { get(other); });
  EXPECT_MENTIONS(message, "there/set.tar.gz: expected sha256 " + zeros + ", got " + sha256_);
  EXPECT_TRUE(entries().empty());
  write(folder_ / "here/set.tar.gz", "what the user put there");
  EXPECT_MENTIONS(message_of<FormatError>([&] { get(archive_); }), "remove it and run this again");
  EXPECT_EQ(entries(), (std::set<std::string>{"set.tar.gz"}));
  write(folder_ / "there/set.tar.gz", "not an archive");
  fs::remove(here() + "/set.tar.gz");
  const std::string sha256 = sha256_of((folder_ / "there/set.tar.gz").string());
  other.sha256 = sha256.c_str();
  EXPECT_MENTIONS(message_of<IoError>([&] { get(other); }), "cannot unpack");
  EXPECT_EQ(entries(), (std::set<std::string>{"set.tar.gz"}));
}

TEST_F(DownloadTest, MoreThanWasPublishedIsNotFetched) {
  write(folder_ / "there/long.gz", std::string(3'000'000, 'x'));
  const PublishedFile small{"set", "file:///nowhere/", "long.gz", 1000, sha256_.c_str(), ""};
  EXPECT_MENTIONS(message_of<FormatError>([&] { get(small); }), "long.gz: is longer than the 1000 published bytes");
  EXPECT_TRUE(entries().empty());
  PublishedFile shorter = archive_;
  --shorter.bytes;
  EXPECT_MENTIONS(message_of<FormatError>([&] { get(shorter); }),
                  concat("is longer than the ", shorter.bytes, " published bytes"));
  EXPECT_TRUE(entries().empty());
}

TEST_F(DownloadTest, ALinkInItsWayIsNotFollowed) {
  fs::create_directories(here());
  write(folder_ / "precious", "mine");
  for (const bool hard : {false, true}) {
    if (hard) fs::create_hard_link(folder_ / "precious", here() + "/set.tar.gz.part");
    else fs::create_symlink(folder_ / "precious", here() + "/set.tar.gz.part");
    EXPECT_TRUE(get(archive_));
    EXPECT_EQ(read_file((folder_ / "precious").string()), "mine");
    fs::remove_all(here());
    fs::create_directories(here());
  }
}

TEST_F(DownloadTest, PublishedFilesComeBySecureWaysWithSizeAndHash) {
  for (const PublishedFile& file : published_files()) {
    EXPECT_TRUE(std::string(file.url).starts_with("https://")) << file.url;
    EXPECT_GT(file.bytes, 1000) << file.name;
    EXPECT_EQ(std::string(file.sha256).size(), 64u) << file.name;
    EXPECT_EQ(std::string(file.sha256).find_first_not_of("0123456789abcdef"), std::string::npos) << file.name;
  }
}

TEST_F(DownloadTest, WithoutANetworkItSaysWhatToDoByHand) {
  const std::string message = message_of<IoError>([&] { download(archive_, here(), "", false); });
  EXPECT_MENTIONS(message, "cannot fetch file:///nowhere/set.tar.gz (curl: (37)");
  EXPECT_MENTIONS(message, "download it by hand, put it into " + here());
  EXPECT_TRUE(entries().empty());
  EXPECT_MENTIONS(message_of<IoError>([] { run_program({"ringtape-no-such-program"}); }), "is it installed?");
}

}  // namespace
}  // namespace ringtape
