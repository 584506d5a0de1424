// Data sets: idx files from untrusted sources, the generated shapes, the split into training and validation.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/device.h"
#include "tests/support/support.h"
#include "train/data/dataset.h"
#include "train/data/sets/download.h"
#include "train/data/sets/idx.h"
#include "train/data/sets/shapes.h"
#include "train/io/hash.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using Bytes = std::string;

Bytes idx(std::vector<uint32_t> dims, const Bytes& elements, int type = 8) {
  Bytes out = {'\0', '\0', char(type), char(dims.size())};
  for (uint32_t d : dims)
    for (int shift = 24; shift >= 0; shift -= 8) out += char(d >> shift & 255);
  return out + elements;
}

void write(const fs::path& path, const Bytes& content) { std::ofstream(path, std::ios::binary) << content; }

void write_gz(const fs::path& path, const Bytes& content) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, content.data(), unsigned(content.size()));
  gzclose(file);
}

Bytes slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_data_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A small data set in MNIST's format: n images of 3x2, image i filled with i, label i % 10.
  void write_set(const fs::path& folder, bool gz, const char* separator = "-", int n = 12, int labels = 12) {
    fs::create_directories(folder);
    Bytes pixels, classes;
    for (int i = 0; i < n; ++i) pixels += Bytes(6, char(i));
    for (int i = 0; i < labels; ++i) classes += char(i % 10);
    for (const char* split : {"train", "t10k"}) {
      const std::string base = (folder / split).string(), suffix = gz ? ".gz" : "";
      const auto put = gz ? write_gz : write;
      put(base + "-images" + separator + "idx3-ubyte" + suffix, idx({uint32_t(n), 3, 2}, pixels));
      put(base + "-labels" + separator + "idx1-ubyte" + suffix, idx({uint32_t(labels)}, classes));
    }
  }
  Splits load(const fs::path& folder, const std::string& name = "mnist") {
    return find_dataset(name).load({.dir = folder.string()});
  }
  // The message of the error E that f throws; fails the test for any other outcome.
  template <class E, class F> std::string error_of(F&& f) {
    try {
      f();
    } catch (const E& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << "another error: " << e.what();
      return {};
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  std::string format_error(const Bytes& content, int rank = 1, bool gz = false) {
    const fs::path path = folder_ / "file";
    (gz ? write_gz : write)(path, content);
    return error_of<FormatError>([&] { read_idx(path.string(), rank); });
  }

  fs::path folder_;
};

TEST_F(DataTest, ReadsEveryLayoutOfAnIdxSet) {
  for (bool gz : {false, true})
    for (const char* separator : {"-", "."})
      for (const char* below : {"", "MNIST/raw", "mnist"}) {
        const fs::path root = folder_ / concat(gz, separator == std::string("."), std::string(below).size());
        write_set(root / below, gz, separator);
        const Splits set = load(root);
        EXPECT_EQ(set.train.images.shape(), (Shape{12, 3, 2, 1}));
        EXPECT_EQ(set.train.classes, 10);
        EXPECT_EQ(set.train.images.span<uint8_t>()[6 * 11], 11);
        EXPECT_EQ(set.test.labels.span<int64_t>()[11], 1);
      }
  write_set(folder_ / "f/FashionMNIST/raw", true);
  EXPECT_EQ(load(folder_ / "f", "fashion_mnist").train.class_names[9], "ankle boot");
}

TEST_F(DataTest, MissingFilesAreNamedWithTheWayToGetThem) {
  std::string e = error_of<IoError>([&] { load(folder_ / "absent"); });
  EXPECT_MENTIONS(e, "no folder " + (folder_ / "absent").string());
  EXPECT_MENTIONS(e, "the data set shapes needs no files");
  EXPECT_MENTIONS(e, "--data-dir");
  e = error_of<IoError>([&] { load(folder_); });
  EXPECT_MENTIONS(e, "no train-images-idx3-ubyte(.gz) in " + folder_.string());
  EXPECT_MENTIONS(e, (folder_ / "MNIST/raw").string());
  write_set(folder_, true);
  fs::remove(folder_ / "t10k-labels-idx1-ubyte.gz");
  e = error_of<IoError>([&] { load(folder_); });
  EXPECT_MENTIONS(e, "no t10k-labels-idx1-ubyte(.gz)");
  error_of<IoError>([&] { read_idx(folder_.string(), 1); });
}

TEST_F(DataTest, OnlyFilesThatAreAbsentCountAsMissing) {
  error_of<MissingData>([&] { load(folder_); });
  write_set(folder_, false);
  const fs::path labels = folder_ / "train-labels-idx1-ubyte";
  fs::remove(labels);
  fs::create_directories(labels);  // a folder cannot be read as a file by any user
  try {
    load(folder_);
    ADD_FAILURE() << "no error";
  } catch (const MissingData&) {
    ADD_FAILURE() << "counts as missing";
  } catch (const IoError& e) {
    EXPECT_MENTIONS(std::string(e.what()), "not a regular file");
  }
}

TEST_F(DataTest, AMisspeltNameGetsASuggestion) {
  EXPECT_MENTIONS(error_of<UsageError>([] { find_dataset("minst"); }), "did you mean mnist?");
  EXPECT_MENTIONS(error_of<UsageError>([] { find_dataset("fashion-mnist"); }), "did you mean fashion_mnist?");
  EXPECT_MENTIONS(error_of<UsageError>([] { find_dataset("imagenet22k"); }), "mnist fashion_mnist cifar10");
}

TEST_F(DataTest, RefusesWhatIsNotExactlyAnIdxFile) {
  const Bytes good = idx({5}, "abcde");
  EXPECT_MENTIONS(format_error(""), "truncated");
  EXPECT_MENTIONS(format_error(good.substr(0, 3)), "truncated");
  EXPECT_MENTIONS(format_error(good.substr(0, 6)), "expected an idx header of 8 bytes, got 6");
  EXPECT_MENTIONS(format_error(good.substr(0, 8)), "truncated");
  EXPECT_MENTIONS(format_error(good.substr(0, 12)), "truncated");
  EXPECT_MENTIONS(format_error(good.substr(0, 12), 1, true), "expected 5 bytes for (5,), got 4");
  EXPECT_MENTIONS(format_error(good + "x"), "bytes after the 5");
  EXPECT_MENTIONS(format_error(good + "x", 1, true), "bytes after the 5");
  EXPECT_MENTIONS(format_error(good, 3), "this is a label file");
  EXPECT_MENTIONS(format_error(idx({1, 1, 1}, "a")), "this is an image file");
  EXPECT_MENTIONS(format_error(idx({1}, "abcd", 0x0d)), "got type 13");
  EXPECT_MENTIONS(format_error("<!DOCTYPE html><html>"), "magic number 2049");
}

TEST_F(DataTest, DeclaredSizesAreCheckedBeforeMemoryIsTaken) {
  EXPECT_MENTIONS(format_error(idx({0xffffffffu}, "abc")), "more than a file of 11 bytes can hold");
  EXPECT_MENTIONS(format_error(idx({0xffffffffu, 0xffffffffu, 0xffffffffu}, "abc"), 3), "can hold");
  EXPECT_MENTIONS(format_error(idx({0xffffffffu, 0xffffffffu, 0xffffffffu}, "abc"), 3, true), "can hold");
  EXPECT_MENTIONS(format_error(idx({0, 0xffffffffu, 0xffffffffu}, ""), 3), "can hold");
  EXPECT_MENTIONS(format_error(idx({0xffffffffu, 0, 0xffffffffu}, ""), 3, true), "can hold");
}

TEST_F(DataTest, RefusesDamagedGzip) {
  Bytes pixels(40000, '\0');
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = char(i * 2654435761u >> 13);
  const fs::path path = folder_ / "file.gz";
  write_gz(path, idx({40000}, pixels));
  const Bytes good = slurp(path);
  ASSERT_EQ(read_idx(path.string(), 1).size(), 40000);
  for (size_t cut : {size_t{5}, size_t{11}, size_t{20}, good.size() / 2, good.size() - 9}) {
    write(path, good.substr(0, cut));
    error_of<FormatError>([&] { read_idx(path.string(), 1); });
  }
  Bytes flipped = good;
  flipped[good.size() / 2] = char(flipped[good.size() / 2] ^ 0x10);
  write(path, flipped);
  error_of<FormatError>([&] { read_idx(path.string(), 1); });
  flipped = good;
  flipped[good.size() - 6] = char(flipped[good.size() - 6] ^ 1);  // the checksum
  write(path, flipped);
  error_of<FormatError>([&] { read_idx(path.string(), 1); });
  write(path, "<html>404</html>");
  EXPECT_MENTIONS(error_of<FormatError>([&] { read_idx(path.string(), 1); }), "named .gz but is not gzip");
}

TEST_F(DataTest, RefusesFilesThatDoNotFitTogether) {
  write_set(folder_, false, "-", 12, 11);
  EXPECT_MENTIONS(error_of<FormatError>([&] { load(folder_); }), "holds 12 images but");
  write_set(folder_, false);
  write(folder_ / "train-labels-idx1-ubyte", idx({12}, Bytes(7, '\3') + '\12' + Bytes(4, '\0')));
  EXPECT_MENTIONS(error_of<FormatError>([&] { load(folder_); }), "label 10 at position 7; expected labels from 0 to 9");
  write_set(folder_, false, "-", 0, 0);
  EXPECT_MENTIONS(error_of<FormatError>([&] { load(folder_); }), "no images");
  write_set(folder_, false);
  write(folder_ / "t10k-images-idx3-ubyte", idx({12, 2, 2}, Bytes(48, 'x')));
  EXPECT_MENTIONS(error_of<FormatError>([&] { load(folder_); }), "differ in size");
}

TEST(Mnist, ReadsTheRealSet) {
  const char* given = std::getenv("RINGTAPE_DATA_DIR");
  const fs::path folder = given ? fs::path(given) : fs::path(RINGTAPE_SOURCE_DIR) / "../shared/data/mnist";
  if (!fs::exists(folder)) GTEST_SKIP() << "no MNIST in " << folder << "; set RINGTAPE_DATA_DIR to its folder";
  const Splits set = find_dataset("mnist").load({.dir = folder.string()});
  EXPECT_EQ(set.train.images.shape(), (Shape{60000, 28, 28, 1}));
  EXPECT_EQ(set.test.images.shape(), (Shape{10000, 28, 28, 1}));
  const auto labels = set.train.labels.span<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(labels.begin(), labels.begin() + 5), (std::vector<int64_t>{5, 0, 4, 1, 9}));
  double sum = 0;
  for (uint8_t pixel : set.train.images.span<uint8_t>()) sum += pixel;
  EXPECT_NEAR(sum / (60000.0 * 784 * 255), set.train.mean[0], 1e-4);
  for (const PublishedFile& file : published_files())
    if (const fs::path path = folder / file.name; file.set == std::string("mnist") && fs::exists(path)) {
      EXPECT_EQ(sha256_of_unpacked(path.string()), file.unpacked_sha256);
    }
}

// A data set in CIFAR's binary format, all zeros except for the last record of each file: label `label`, red 1, green
// 2, blue 3, and the first pixel 9, 8, 7.
void write_cifar_file(const fs::path& path, int64_t labels, int64_t records, int label) {
  const int64_t record = labels + 3072;
  write(path, "");
  fs::resize_file(path, uintmax_t(records * record));
  Bytes last = Bytes(size_t(labels - 1), '\0') + char(label);
  for (char c : {1, 2, 3}) last += char(10 - c) + Bytes(1023, c);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp((records - 1) * record);
  file << last;
}

void write_cifar10(const fs::path& folder) {
  fs::create_directories(folder);
  for (const char* file :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"})
    write_cifar_file(folder / (std::string(file) + ".bin"), 1, 10'000, 9);
  Bytes names;
  for (int i = 0; i < 10; ++i) names += "name" + std::to_string(i) + "\n";
  write(folder / "batches.meta.txt", names + "\n");
}

TEST_F(DataTest, ReadsCifarsBinaryVersions) {
  for (const char* below : {"", "cifar-10-batches-bin"}) {
    fs::remove_all(folder_ / "c");
    write_cifar10(folder_ / "c" / below);
    const Splits set = load(folder_ / "c", "cifar10");
    EXPECT_EQ(set.train.images.shape(), (Shape{50000, 32, 32, 3}));
    EXPECT_EQ(set.test.images.shape(), (Shape{10000, 32, 32, 3}));
    EXPECT_EQ(set.train.class_names[9], "name9");
    EXPECT_EQ(set.test.mean, set.train.mean);
    const auto images = set.train.images.span<uint8_t>();
    for (size_t file = 0; file < 5; ++file) {
      const size_t last = file * 10000 + 9999;
      EXPECT_EQ(set.train.labels.span<int64_t>()[last], 9);
      EXPECT_EQ(set.train.labels.span<int64_t>()[last - 1], 0);
      const auto image = images.subspan(last * 3072, 6);
      EXPECT_EQ((std::vector<int>{image.begin(), image.end()}), (std::vector<int>{9, 8, 7, 1, 2, 3}));
    }
  }
  const fs::path folder = folder_ / "h/cifar-100-binary";
  fs::create_directories(folder);
  write_cifar_file(folder / "train.bin", 2, 50'000, 99);
  write_cifar_file(folder / "test.bin", 2, 10'000, 7);
  Bytes names;
  for (int i = 0; i < 100; ++i) names += "n" + std::to_string(i) + "\r\n";
  write(folder / "fine_label_names.txt", names);
  const Splits set = load(folder_ / "h", "cifar100");
  EXPECT_EQ(set.train.classes, 100);
  EXPECT_EQ(set.train.class_names[99], "n99");
  EXPECT_EQ(set.train.labels.span<int64_t>()[49'999], 99);
  EXPECT_EQ(set.test.labels.span<int64_t>()[9'999], 7);
}

TEST_F(DataTest, RefusesCifarFilesThatAreNotWhole) {
  write_cifar10(folder_);
  const auto error = [&] { return error_of<FormatError>([&] { load(folder_, "cifar10"); }); };
  fs::resize_file(folder_ / "data_batch_3.bin", 30'729'999);
  EXPECT_MENTIONS(error(),
                  "data_batch_3.bin: expected 30730000 bytes (10000 records of 3073), got 30729999; it is truncated");
  write_cifar_file(folder_ / "data_batch_3.bin", 1, 10'000, 10);
  EXPECT_MENTIONS(error(), "data_batch_3.bin: label 10 in record 9999; expected labels from 0 to 9");
  write_cifar_file(folder_ / "data_batch_3.bin", 2, 10'000, 1);
  EXPECT_MENTIONS(error(), "got 30740000; is this the right file?");
  write_cifar_file(folder_ / "data_batch_3.bin", 1, 10'000, 1);
  write(folder_ / "batches.meta.txt", "one\ntwo\n");
  EXPECT_MENTIONS(error(), "expected 10 class names, one per line, got 2");
  fs::remove(folder_ / "test_batch.bin");
  write_cifar10(folder_ / "again");
  fs::remove(folder_ / "again/data_batch_5.bin");
  EXPECT_MENTIONS(error_of<IoError>([&] { load(folder_ / "again", "cifar10"); }), "data_batch_5.bin: cannot read");
}

TEST_F(DataTest, TheCifarOfPythonIsRecognised) {
  for (const auto& [name, below, file] :
       {std::tuple{"cifar10", "cifar-10-batches-py", "data_batch_1"}, {"cifar100", "cifar-100-python", "meta"}}) {
    fs::create_directories(folder_ / below);
    write(folder_ / below / file, "\x80\x02}q");
    const std::string e = error_of<MissingData>([&, name = name] { load(folder_, name); });
    EXPECT_MENTIONS(e, (folder_ / below).string() + " holds the version for Python");
    EXPECT_MENTIONS(e, concat("ringtape data download ", name));
  }
  EXPECT_MENTIONS(error_of<MissingData>([&] { load(folder_ / "absent", "cifar10"); }), "no folder");
  fs::create_directories(folder_ / "empty");
  EXPECT_MENTIONS(error_of<MissingData>([&] { load(folder_ / "empty", "cifar10"); }), "no data_batch_1.bin in");
}

TEST(Cifar10, ReadsTheRealSet) {
  const char* given = std::getenv("RINGTAPE_TEST_CIFAR_DIR");
  const fs::path folder = given ? fs::path(given) : fs::path(RINGTAPE_SOURCE_DIR) / "../shared/data";
  if (!fs::exists(folder / "cifar-10-batches-bin"))
    GTEST_SKIP() << "no cifar-10-batches-bin in " << folder << "; set RINGTAPE_TEST_CIFAR_DIR to its folder";
  const Splits set = find_dataset("cifar10").load({.dir = folder.string()});
  const auto labels = set.train.labels.span<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(labels.begin(), labels.begin() + 5), (std::vector<int64_t>{6, 9, 9, 4, 1}));
  EXPECT_EQ(set.train.class_names[6], "frog");
  const auto pixels = set.train.images.span<uint8_t>();
  for (size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (size_t i = c; i < pixels.size(); i += 3) {
      const double x = pixels[i] / 255.0;
      sum += x, squares += x * x;
    }
    const double n = double(pixels.size() / 3), mean = sum / n;
    EXPECT_NEAR(mean, set.train.mean[c], 0.002);
    EXPECT_NEAR(std::sqrt(squares / n - mean * mean), set.train.deviation[c], 0.005);
  }
}

TEST(Shapes, ImageDependsOnItsNumberAlone) {
  const auto make = [](int64_t n, uint64_t seed) {
    return find_dataset("shapes").load({.settings = ShapesOptions{n, 20}, .seed = seed});
  };
  const Splits small = make(30, 1), large = make(100, 1), other = make(30, 2);
  const auto a = small.train.images.span<uint8_t>(), b = large.train.images.span<uint8_t>();
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
  EXPECT_FALSE(std::equal(a.begin(), a.end(), other.train.images.span<uint8_t>().begin()));
  EXPECT_FALSE(std::equal(a.begin(), a.begin() + 3072, small.test.images.span<uint8_t>().begin()));
  set_threads(1);
  const Splits serial = make(100, 1);
  set_threads(2);
  const auto c = serial.train.images.span<uint8_t>();
  EXPECT_TRUE(std::equal(c.begin(), c.end(), b.begin()));
}

TEST(Shapes, AreBalancedAndMatchTheirStatistics) {
  const Dataset set = find_dataset("shapes").load({.settings = ShapesOptions{2000, 1}, .seed = 3}).train;
  EXPECT_EQ(set.classes, 10);
  EXPECT_EQ(set.class_names.size(), 10u);
  std::vector<int> count(10);
  for (int64_t label : set.labels.span<int64_t>()) ++count[size_t(label)];
  EXPECT_EQ(count, std::vector<int>(10, 200));
  double sum = 0, squares = 0;
  for (uint8_t pixel : set.images.span<uint8_t>()) sum += pixel / 255.0, squares += pixel / 255.0 * (pixel / 255.0);
  const double n = double(set.images.size()), mean = sum / n;
  EXPECT_NEAR(mean, set.mean[0], 0.02);
  EXPECT_NEAR(std::sqrt(squares / n - mean * mean), set.deviation[0], 0.02);
}

TEST(Shapes, RefusesSizesOutOfRange) {
  EXPECT_THROW(find_dataset("shapes").load({.settings = ShapesOptions{0, 1}}), UsageError);
  EXPECT_THROW(find_dataset("shapes").load({.settings = ShapesOptions{1, 100'000'000}}), UsageError);
}

TEST(Holdout, CutsEverySampleOnceAndAlikeEachTime) {
  const Holdout a = holdout(60000, 5000, 1), b = holdout(60000, 5000, 1), c = holdout(60000, 5000, 2);
  EXPECT_EQ(a.train.size(), 55000u);
  EXPECT_EQ(a.val, b.val);
  EXPECT_NE(a.val, c.val);
  std::set<int64_t> all(a.train.begin(), a.train.end());
  all.insert(a.val.begin(), a.val.end());
  EXPECT_EQ(all.size(), 60000u);
  EXPECT_EQ(*all.rbegin(), 59999);
  EXPECT_TRUE(holdout(10, 0, 1).val.empty());
  EXPECT_THROW(holdout(10, 10, 1), UsageError);
}

TEST(Holdout, AFractionOfEachClass) {
  const Tensor labels = from_host(std::vector<int64_t>{0, 1, 0, 1, 0, 1, 0, 2, 0, 0}, {10});
  const std::vector<int64_t> all = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  EXPECT_EQ(fraction_of(all, labels, 3, 0.5), (std::vector<int64_t>{9, 8, 7, 6, 5, 3}));
  EXPECT_EQ(fraction_of(all, labels, 3, 0.01), (std::vector<int64_t>{9, 7, 5}));
  EXPECT_EQ(fraction_of(all, labels, 3, 1), all);
  EXPECT_TRUE(fraction_of({}, labels, 3, 0.5).empty());
}

}  // namespace
}  // namespace ringtape
