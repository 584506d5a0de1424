// safetensors: other programs must be able to open the files, and files of others must be checked, then read or
// refused.
#include "train/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "autograd/create.h"
#include "nn/module.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/safetensors_header.h"
#include "train/io/weights_file.h"
#include "train/weights/weights.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_safetensors_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = (folder_ / "x.safetensors").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Reads a file with this header, preceded by its size or by `declared`, and this many zero bytes of data.
  Safetensors read(const std::string& header, size_t data = 0, int64_t declared = -1) {
    const uint64_t size = declared < 0 ? header.size() : uint64_t(declared);
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &size, 8);
    write_file(path_, bytes + header + std::string(data, '\0'));
    return read_safetensors(path_);
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(SafetensorsTest, RoundTripOfEveryType) {
  std::vector<NamedTensor> tensors;
  for (DType dtype : {DType::b8, DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64}) {
    Tensor x({2, 3}, dtype);
    for (size_t i = 0; i < x.storage()->bytes(); ++i)
      static_cast<char*>(View(x).data)[i] = char(dtype == DType::b8 ? i % 2 : 3 * i + 1);
    tensors.push_back({"layer." + std::string(name_of(dtype)), x});
  }
  tensors.push_back({"scalar", from_host(std::vector<float>{2.5f}, {})});
  tensors.push_back({"empty", Tensor({0, 4}, DType::f32)});
  write_safetensors(path_, tensors, {{"format", "pt"}, {"note", "\"quoted\"\n\xc3\xa9"}});
  const Safetensors back = read_safetensors(path_);
  EXPECT_EQ(back.metadata.at("note"), "\"quoted\"\n\xc3\xa9");
  ASSERT_EQ(back.tensors.size(), tensors.size());
  for (const auto& [name, x] : tensors) {
    const Tensor& y = back[name];
    EXPECT_EQ(y.shape(), x.shape());
    ASSERT_EQ(y.dtype(), x.dtype());
    EXPECT_EQ(std::memcmp(View(x).data, View(y).data, size_t(x.size()) * size_of(x.dtype())), 0) << name;
  }
  EXPECT_EQ(back["scalar"].item(), 2.5);
  EXPECT_THROW(back["absent"], FormatError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);  // no temporary file is left
}

TEST_F(SafetensorsTest, WritesTheReferenceLayout) {
  const Tensor bytes = from_host(std::vector<uint8_t>{7, 8, 9}, {3}), b = from_host(std::vector<float>{1, 2}, {2}),
               w = from_host(std::vector<float>{3, 4}, {1, 2});
  write_safetensors(path_, {{"z", bytes}, {"fc.weight", w}, {"fc.bias", b}}, {{"format", "pt"}});
  const std::string file = read_file(path_);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  std::string text = file.substr(8, header);
  text.erase(text.find_last_not_of(' ') + 1);
  EXPECT_EQ(text, R"({"__metadata__":{"format":"pt","ringtape.crc32":"46a29ac2 of 19 bytes"},)"
                  R"("fc.bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                  R"("fc.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
                  R"("z":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})");
  EXPECT_EQ(file.size(), 8 + header + 19);
  EXPECT_EQ(file[file.size() - 1], 9);
}

TEST_F(SafetensorsTest, WritesViewsInRowMajorOrder) {
  const Tensor x = from_host(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  write_safetensors(path_, {{"t", x.window({3, 2}, {1, 3})}});
  const Safetensors back = read_safetensors(path_);
  const auto y = back["t"].span<float>();
  EXPECT_EQ(std::vector<float>(y.begin(), y.end()), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST_F(SafetensorsTest, RefusesRepeatedNamesWhenWriting) {
  const Tensor x({1});
  EXPECT_THROW(write_safetensors(path_, {{"a", x}, {"a", x}}), UsageError);
  EXPECT_THROW(write_safetensors(path_, {{"__metadata__", x}}), UsageError);
  EXPECT_THROW(write_safetensors((folder_ / "absent/x").string(), {{"a", x}}), IoError);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SafetensorsTest, RefusesUndefinedTensorsWhenWriting) {
  for (const char* name : {"none.safetensors", "none.pth"}) {
    const std::string path = (folder_ / name).string();
    EXPECT_MENTIONS(test::message_of<UsageError>([&] {
                      write_weights(path, {{"x", Tensor()}}, {});
                    }),
                    "an undefined tensor 'x'");
    EXPECT_FALSE(fs::exists(path)) << path;
  }
}

TEST_F(SafetensorsTest, ReadsWhatOthersWrite) {
  // Spaces inside and after, entries in any order, an unknown field, no metadata.
  const Safetensors file = read(R"({ "b": {"data_offsets":[4, 12], "shape":[1,1], "dtype":"I64", "extra":1},
                                     "a": {"dtype":"F32","shape":[],"data_offsets":[0,4]} }   )",
                                12);
  EXPECT_EQ(file.tensors[0].name, "a");
  EXPECT_EQ(file["a"].rank(), 0);
  EXPECT_EQ(file["b"].dtype(), DType::i64);
  EXPECT_TRUE(read("{}").tensors.empty());
  const Safetensors empty = read(R"({"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                 1);
  EXPECT_EQ(empty["e"].size(), 0);
}

// Of types that tensors here do not have; .pth files are read like this, too.
TEST_F(SafetensorsTest, TensorsThatNobodyWantsMayBeOfAnyType) {
  std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  uint64_t at = 8;
  for (const auto& [dtype, bytes] :
       {std::pair("I8", 4), {"U16", 8}, {"F8_E5M2", 4}, {"C64", 32}, {"F4", 2}, {"F6_E2M3", 3}}) {
    header += concat(R"(,")", dtype, R"(":{"dtype":")", dtype, R"(","shape":[4],"data_offsets":[)", at, ",",
                     at + uint64_t(bytes), "]}");
    at += uint64_t(bytes);
  }
  header += concat(R"(,"z":{"dtype":"U8","shape":[1],"data_offsets":[)", at, ",", at + 1, "]}}");
  EXPECT_MENTIONS(test::message_of<FormatError>([&] { read(header, at + 1); }), "tensor 'I8' has dtype \"I8\"; known");
  std::vector<std::string> got;
  read_weights(
      path_, [](const SafetensorsHeader& h) { EXPECT_EQ(h.tensors.size(), 8u); },
      [](const std::string& name) { return name == "a" || name == "z"; },
      [&](const TensorEntry& entry, Part, const Tensor&) { got.push_back(entry.name); });
  EXPECT_EQ(got, (std::vector<std::string>{"a", "z"}));
}

TEST_F(SafetensorsTest, RefusesMalformedFiles) {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"("dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets;
  };
  const auto one = [&](const std::string& body) { return R"({"a":{)" + body + "}}"; };
  struct Case {
    const char* what;
    std::string header;
    size_t data;
    const char* message;
  };
  const std::string good = entry("F32", "[2]", "[0,8]");
  const Case cases[] = {
      {"empty header", "", 0, "does not start with {"},
      {"not JSON", "{nonsense}", 0, "not valid JSON"},
      {"cut JSON", "{\"a\":{", 0, "not valid JSON"},
      {"trailing text", "{} x", 0, "not valid JSON"},
      {"an array", "[]", 0, "does not start with {"},
      {"white space first", " {}", 0, "does not start with {"},
      {"bytes that are not UTF-8", "{\"\xff\xfe\":1}", 0, "not valid JSON"},
      {"depth", "{\"a\":" + std::string(100000, '['), 0, "not described by an object"},
      {"a name that would steer a terminal", R"({"\u001b]0;x\u0007":1})", 0,
       "tensor '\\x1b]0;x\\x07' is not described"},
      {"a long name", "{\"" + std::string(5000, 'x') + "\":1}", 0, "xxx...' is not described by an object"},
      {"depth of what is not looked at", "{\"a\":{\"x\":" + std::string(100000, '['), 0, "nested too deep"},
      {"a name twice", R"({"a":{)" + good + R"(},"a":{)" + good + "}}", 8, "'a' twice"},
      {"a field twice", one(good + R"(,"shape":[2])"), 8, "'shape' twice"},
      {"metadata of numbers", R"({"__metadata__":{"a":1}})", 0, "strings to strings"},
      {"metadata not an object", R"({"__metadata__":[]})", 0, "strings to strings"},
      {"no object", R"({"a":1})", 0, "not described by an object"},
      {"no dtype", one(R"("shape":[2],"data_offsets":[0,8])"), 8, "has no dtype"},
      {"no shape", one(R"("dtype":"F32","data_offsets":[0,8])"), 8, "has no shape"},
      {"no offsets", one(R"("dtype":"F32","shape":[2])"), 8, "has no data_offsets"},
      {"unknown dtype", one(entry("F9", "[8]", "[0,8]")), 8, "'a' has dtype \"F9\"; known are BOOL U8"},
      {"unsupported dtype", one(entry("F8_E4M3", "[8]", "[0,8]")), 8, "'a' has dtype \"F8_E4M3\"; known are BOOL U8"},
      {"unsupported dtype, other size", one(entry("I16", "[8]", "[0,8]")), 8, "not what its shape"},
      {"half a byte", one(entry("F4", "[3]", "[0,1]")), 1, "not what its shape"},
      {"a byte 0, which is no white space", one(good) + '\0', 8, "not valid JSON"},
      {"text behind a byte 0", one(good) + '\0' + "garbage]", 8, "not valid JSON"},
      {"dtype a number", one(R"("dtype":3,"shape":[2],"data_offsets":[0,8])"), 8, "has dtype 3"},
      {"negative size", one(entry("F32", "[-2]", "[0,8]")), 8, "whole numbers"},
      {"fractional size", one(entry("F32", "[2.0]", "[0,8]")), 8, "whole numbers"},
      {"nine axes", one(entry("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]")), 8, "at most 8"},
      {"size beyond 64 bits", one(entry("F32", "[99999999999999999999]", "[0,8]")), 8, "whole numbers"},
      {"product overflows", one(entry("F32", "[4294967296,4294967296]", "[0,8]")), 8, "not what its shape"},
      {"negative after a cast", one(entry("U8", "[0,18446744073709551615]", "[0,0]")), 0, "not what its shape"},
      {"overflow beside a zero", one(entry("F32", "[0,4611686018427387904,4]", "[0,0]")), 0, "not what its shape"},
      {"one offset", one(entry("F32", "[2]", "[0]")), 8, "two numbers"},
      {"offsets reversed", one(entry("F32", "[2]", "[8,0]")), 8, "expected it to begin at 0"},
      {"offsets not from 0", one(entry("F32", "[2]", "[4,12]")), 12, "expected it to begin at 0"},
      {"offsets beyond the file", one(entry("F32", "[2]", "[0,8]")), 4, "the file holds 4"},
      {"size and offsets differ", one(entry("F32", "[3]", "[0,8]")), 8, "not what its shape"},
      {"bytes left over", one(good), 9, "the file holds 9"},
      {"a hole", R"({"a":{)" + good + R"(},"b":{)" + entry("F32", "[1]", "[12,16]") + "}}", 16,
       "expected it to begin at 8"},
      {"an overlap", R"({"a":{)" + good + R"(},"b":{)" + entry("F32", "[1]", "[4,8]") + "}}", 8,
       "expected it to begin at 8"},
  };
  for (const Case& c : cases) {
    try {
      read(c.header, c.data);
      ADD_FAILURE() << c.what << ": accepted";
    } catch (const FormatError& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find(c.message), std::string::npos) << c.what << ": " << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << c.what;
      EXPECT_LT(message.size(), 500u) << c.what;
    }
  }
}

TEST_F(SafetensorsTest, RefusesBoolsThatAreNeither) {
  const std::string header = R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  EXPECT_EQ(read(header, 3)["a"].size(), 3);
  std::string bytes = read_file(path_);
  bytes.back() = 1;
  write_file(path_, bytes);
  EXPECT_NO_THROW(read_safetensors(path_));
  bytes.back() = 2;
  write_file(path_, bytes);
  EXPECT_THROW(read_safetensors(path_), FormatError);
}

TEST_F(SafetensorsTest, MetadataThatIsNotUtf8IsReplaced) {
  write_safetensors(path_, std::vector<NamedTensor>(), {{"path", "caf\xe9"}});
  EXPECT_EQ(read_safetensors(path_).metadata.at("path"), "caf\xef\xbf\xbd");
}

TEST_F(SafetensorsTest, ANameThatIsNotUtf8IsRefused) {
  EXPECT_MENTIONS(test::message_of<FormatError>([&] { write_safetensors(path_, {{"caf\xe9", zeros({1})}}); }), "UTF-8");
}

TEST_F(SafetensorsTest, RefusesWrongHeaderSizes) {
  EXPECT_THROW(read("{}", 0, 3), FormatError);
  EXPECT_THROW(read("{}", 0, 100'000'001), FormatError);
  EXPECT_THROW(read("{}", 0, INT64_MAX), FormatError);
  write_file(path_, "1234567");
  EXPECT_THROW(read_safetensors(path_), FormatError);
  write_file(path_, std::string(8, '\xff'));
  EXPECT_THROW(read_safetensors(path_), FormatError);
  write_file(path_, "");
  EXPECT_THROW(read_safetensors(path_), FormatError);
  EXPECT_THROW(read_safetensors((folder_ / "absent").string()), IoError);
  EXPECT_THROW(read_safetensors(folder_.string()), IoError);
}

TEST_F(SafetensorsTest, AFileThatBecomesShorterIsNoticed) {
  const auto cut = [&](const SafetensorsHeader&) { fs::resize_file(path_, fs::file_size(path_) - 4); };
  const std::string message = test::message_of<IoError>([&] {
    write_safetensors(path_, {{"x", ones({100'000})}});
    read_safetensors(path_, cut, [](const TensorEntry&, Part, const Tensor&) {});
  });
  EXPECT_MENTIONS(message, path_ + ": cannot read: it has become shorter");
}

TEST_F(SafetensorsTest, WhyAFileCannotBeOpenedIsSaid) {
  write_file(path_, "12345678");
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string said = test::message_of<IoError>([&] { (void)InputFile(path_); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_MENTIONS(said, path_ + ": cannot open: Too many open files");
}

TEST_F(SafetensorsTest, AnUnfinishedFileLeavesNothing) {
  { AtomicFile(path_).write("abc", 3); }
  EXPECT_TRUE(fs::is_empty(folder_));
  write_file(path_, "old");
  { AtomicFile(path_).write("new", 3); }
  EXPECT_EQ(read_file(path_), "old");
}

// The memory is at most a few times the size of the header's text, whatever the text is.
TEST(SafetensorsHeader, TakesMemoryInProportion) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int64_t kMax = 60;
#else
  constexpr int64_t kMax = 12;
#endif
  std::string tensors = "{", metadata = R"({"__metadata__":{)",
              unknown = R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":[)";
  for (int i = 0; i < 200'000; ++i) {
    tensors += concat(i > 0 ? "," : "", '"', i, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
    metadata += concat(i > 0 ? "," : "", '"', i, "\":\"\"");
    unknown += "1,1,1,1,1,";
  }
  for (const std::string& text : {tensors + "}", metadata + "}}", unknown + "1]}}"}) {
    const auto peak = [] {
      rusage usage{};
      ::getrusage(RUSAGE_SELF, &usage);
      return int64_t(usage.ru_maxrss) * 1024;
    };
    const int64_t before = peak();
    const SafetensorsHeader header = parse_safetensors_header(text, 0, "x");
    EXPECT_LT(peak() - before, kMax * int64_t(text.size())) << text.substr(0, 100);
    EXPECT_GE(header.tensors.size() + header.metadata.size(), 1u);
  }
  EXPECT_EQ(parse_safetensors_header(tensors + "}", 0, "x").tensors.size(), 200'000u);
  const std::string large = R"({"__metadata__":{"a":")" + std::string(10'000'001, 'x') + "\"}}";
  EXPECT_MENTIONS(test::message_of<FormatError>([&] { parse_safetensors_header(large, 0, "x"); }),
                  "x: more than 10000000 bytes of __metadata__");
}

// Looks like a convolution in files: weight K,R,S,C.
struct Filters : nn::Module {
  Tensor weight = leaf(rand({2, 3, 3, 4})), mean = rand({2});
  Tensor forward(const Tensor& x) override { return x; }
  void visit(nn::Visitor& v) override {
    v.parameter("weight", weight);
    v.buffer("running_mean", mean);
  }
  std::string str() const override { return "Filters"; }
};

TEST_F(SafetensorsTest, ConvolutionWeightsLieInPyTorchsOrder) {
  Filters from, into;
  write_safetensors(path_, weights_of(from));
  const Safetensors file = read_safetensors(path_);
  ASSERT_EQ(file["weight"].shape(), (Shape{2, 4, 3, 3}));
  for (int64_t k = 0; k < 2; ++k)
    for (int64_t c = 0; c < 4; ++c)
      for (int64_t i = 0; i < 9; ++i)
        ASSERT_EQ(file["weight"].data<float>()[(k * 4 + c) * 9 + i], from.weight.data<float>()[(k * 9 + i) * 4 + c]);
  load_tensors(path_, file_tensors(weights_of(into)));
  EXPECT_TRUE(std::ranges::equal(into.weight.span<float>(), from.weight.span<float>()));
  EXPECT_TRUE(std::ranges::equal(into.mean.span<float>(), from.mean.span<float>()));
}

}  // namespace
}  // namespace ringtape
