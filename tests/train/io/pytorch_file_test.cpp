// Files of weights as PyTorch writes them (tests/fixtures/make_pytorch.py), damaged ones, and our own.
#include "train/io/pytorch_file.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/weights_file.h"
#include "train/io/zip.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using test::message_of;
using test::values;

const std::string kFiles = RINGTAPE_SOURCE_DIR "/tests/fixtures/pytorch/";

class PyTorchFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  // The message of what reading all of a file throws; "" if nothing is thrown.
  static std::string refusal_of(const std::string& file) {
    try {
      read(file);
      return "";
    } catch (const FormatError& e) {
      return e.what();
    } catch (const IoError& e) {
      return e.what();
    }
  }
  std::string refusal(const std::string& bytes) const {
    std::ofstream(path("x.pth"), std::ios::binary) << bytes;
    return refusal_of(path("x.pth"));
  }
  static std::map<std::string, Tensor> read(const std::string& file) {
    std::map<std::string, Tensor> out;
    PyTorchFile in(file);
    for (size_t i = 0; i < in.header().tensors.size(); ++i) out[in.header().tensors[i].name] = in.read(i);
    return out;
  }

  fs::path folder_ = fs::temp_directory_path() / concat("ringtape_pytorch_", ::getpid());
};

// As counting() of make_pytorch.py.
std::vector<double> counting(const Shape& shape) {
  std::vector<double> out(size_t(shape.size()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = double(i) + shape.rank();
  return out;
}
std::vector<double> numbers(const Tensor& x) { return values(cast(x, DType::f64)); }

TEST_F(PyTorchFileTest, AllTypesAndLayouts) {
  for (const char* const name : {"types.pth", "types_legacy.pth"}) {
    const std::map<std::string, Tensor> file = read(kFiles + name);
    const std::map<std::string, std::pair<DType, Shape>> expected = {
        {"bool", {DType::b8, {2, 3}}},     {"uint8", {DType::u8, {2, 3}}},
        {"int32", {DType::i32, {2, 3}}},   {"int64", {DType::i64, {2, 3}}},
        {"float16", {DType::f16, {2, 3}}}, {"bfloat16", {DType::bf16, {2, 3}}},
        {"float32", {DType::f32, {2, 3}}}, {"float64", {DType::f64, {2, 3}}},
        {"scalar", {DType::f32, {}}},      {"empty", {DType::f32, {0, 4}}},
        {"turned", {DType::f32, {3, 2}}},  {"channels_last", {DType::f32, {2, 3, 2, 2}}},
        {"parameter", {DType::f32, {2}}},  {"part", {DType::f32, {3}}},
        {"same", {DType::f32, {8}}}};
    ASSERT_EQ(file.size(), expected.size()) << name;
    for (const auto& [tensor, is] : expected) {
      const Tensor& x = file.at(tensor);
      EXPECT_EQ(x.dtype(), is.first) << tensor;
      EXPECT_EQ(x.shape(), is.second) << tensor;
      EXPECT_TRUE(x.contiguous()) << tensor;
      if (tensor == "bool") EXPECT_EQ(numbers(x), (std::vector<double>{1, 0, 1, 1, 0, 1}));
      else if (tensor == "part") EXPECT_EQ(numbers(x), (std::vector<double>{3, 4, 5}));
      else EXPECT_EQ(numbers(x), counting(x.shape())) << tensor;
    }
  }
}

TEST_F(PyTorchFileTest, TheStateDictIsFoundInEveryKindOfFile) {
  const std::vector<std::string> names = {"bn1.bias",         "bn1.num_batches_tracked",
                                          "bn1.running_mean", "bn1.running_var",
                                          "bn1.weight",       "conv1.weight",
                                          "fc.bias",          "fc.weight"};
  for (const char* const file : {"protocol4.pth", "checkpoint.ckpt", "checkpoint_legacy.pth", "whole.pth",
                                 "whole_legacy.pth", "legacy4.pth", "nested.pth", "script.pt", "without_crc.pth"}) {
    const std::string prefix = std::string(file) == "checkpoint.ckpt" ? "model." : "";
    const std::map<std::string, Tensor> found = read(kFiles + file);
    EXPECT_EQ(found.size(), names.size()) << file;
    for (const std::string& name : names) {
      ASSERT_TRUE(found.contains(prefix + name)) << file << ' ' << name;
      EXPECT_EQ(numbers(found.at(prefix + name)), counting(found.at(prefix + name).shape())) << file << ' ' << name;
    }
  }
}

// Averages, as timm saves them.
TEST_F(PyTorchFileTest, OtherSetsOfWeightsAreNamed) {
  EXPECT_EQ(PyTorchFile(kFiles + "average.pth").header().beside, std::vector<std::string>{"state_dict_ema"});
  EXPECT_TRUE(PyTorchFile(kFiles + "checkpoint.ckpt").header().beside.empty());
}

// Members by name, or tensors whose names begin with it; the averages of the fixtures are greater by 1.
TEST_F(PyTorchFileTest, ASetOfWeightsIsChosen) {
  const auto bias = [](const std::string& file, const std::string& set) {
    PyTorchFile in(kFiles + file, set);
    EXPECT_TRUE(set.empty() || in.header().beside.empty());
    const std::vector<TensorEntry>& all = in.header().tensors;
    const auto found = std::ranges::find_if(all, [](const TensorEntry& t) { return t.name.ends_with("fc.bias"); });
    return values(in.read(size_t(found - all.begin())))[0];
  };
  EXPECT_EQ(bias("average.pth", ""), 1);
  EXPECT_EQ(bias("average.pth", "state_dict"), 1);
  EXPECT_EQ(bias("average.pth", "state_dict_ema"), 2);
  EXPECT_EQ(bias("several.pth", "student"), 1);
  EXPECT_EQ(bias("several.pth", "teacher"), 2);
  EXPECT_EQ(bias("nested.pth", "model"), 1);
  EXPECT_EQ(bias("checkpoint.ckpt", "model"), 1);
  EXPECT_MENTIONS(message_of<FormatError>([&] { bias("average.pth", "ema"); }),
                  "average.pth: has no set of weights 'ema', only 'epoch', 'state_dict', 'state_dict_ema'");
}

TEST_F(PyTorchFileTest, WhatIsNoSetOfWeightsIsNamed) {
  const auto refused = [&](const char* name) { return message_of<FormatError>([&] { read(kFiles + name); }); };
  EXPECT_MENTIONS(refused("several.pth"),
                  "several.pth: has several sets of weights ('student', 'teacher'); choose one with --weights-key");
  EXPECT_MENTIONS(refused("none.pth"), "none.pth: has no state_dict, only 'epoch', 'args'");
  EXPECT_MENTIONS(refused("quantized.pth"), "tensor 'x' is none of plain numbers (torch._utils._rebuild_qtensor)");
  EXPECT_MENTIONS(refused("short.pth"), "tensor 'x' is of torch.ShortStorage; known are torch.FloatStorage");
  PyTorchFile beside(kFiles + "beside.pth");  // weights, and tensors that are refused when they are read
  std::map<std::string, std::string> problems;
  for (size_t i = 0; i < beside.header().tensors.size(); ++i)
    if (const TensorEntry& entry = beside.header().tensors[i]; !entry.problem.empty()) {
      problems[entry.name] = entry.problem;
      EXPECT_MENTIONS(message_of<FormatError>([&] { beside.read(i); }), "tensor '" + entry.name + "' " + entry.problem);
    }
  ASSERT_EQ(problems.size(), 6u);
  EXPECT_MENTIONS(problems["complex"], "is of torch.ComplexFloatStorage");
  EXPECT_MENTIONS(problems["float8"], "is of torch.float8_e4m3fn");
  EXPECT_EQ(problems["expanded"], "repeats the 1 numbers of its storage; save x.contiguous()");
  EXPECT_EQ(problems["axes"], "has 9 axes; at most 8 are supported");
  EXPECT_MENTIONS(problems["sparse"], "is none of plain numbers (torch._utils._rebuild_sparse_tensor)");
  EXPECT_MENTIONS(problems["negated"], "is stored negated or conjugated");
  EXPECT_THROW(read(kFiles + "absent.pth"), IoError);
  EXPECT_THROW(read(kFiles), Error);

  ZipWriter zip(path("other.zip"));
  zip.add("a.txt", "text");
  zip.commit();
  EXPECT_MENTIONS(message_of<FormatError>([&] { read(path("other.zip")); }), "a ZIP archive, but not PyTorch's");
  const std::string big = path("big.pth");
  ZipWriter other(big);
  other.add("a/data.pkl", std::string("\x80\x02}.", 4));
  other.add("a/byteorder", "big");
  other.commit();
  EXPECT_MENTIONS(message_of<FormatError>([&] { read(big); }), "was written by a big-endian machine");
  EXPECT_MENTIONS(refusal("\x80\x04N."), "a Python pickle, but not one of PyTorch's");
}

TEST_F(PyTorchFileTest, FilesThatAreCutOffAreRefused) {
  EXPECT_EQ(refusal(read_file(kFiles + "types.pth") + "more"), "");
  for (const char* const name : {"types.pth", "types_legacy.pth"}) {
    const std::string whole = read_file(kFiles + name);
    for (size_t bytes = 0; bytes < whole.size(); ++bytes)
      ASSERT_NE(refusal(whole.substr(0, bytes)), "") << name << ' ' << bytes;
    EXPECT_EQ(refusal(whole), "");
  }
}

// Whatever the bytes, one line says what is wrong, or the file can be read.
TEST_F(PyTorchFileTest, ChangedBytesAreReadOrRefused) {
  std::mt19937 random(1);
  int refused = 0, trials = 0;
  for (const char* const name : {"types.pth", "types_legacy.pth", "checkpoint.ckpt", "whole.pth", "without_crc.pth"}) {
    const std::string whole = read_file(kFiles + name);
    for (int trial = 0; trial < 200; ++trial, ++trials) {
      std::string bytes = whole;
      for (int changes = 1 + int(random() % 4); changes > 0; --changes) bytes[random() % bytes.size()] = char(random());
      const std::string line = refusal(bytes);
      refused += !line.empty();
      ASSERT_EQ(line.find('\n'), std::string::npos) << line;
      ASSERT_LT(line.size(), 1000u) << line;
    }
  }
  EXPECT_GT(refused, trials / 4);
}

TEST_F(PyTorchFileTest, DamagedNumbersAreNoticed) {
  write_pytorch(path("a.pth"), {{"x", from_host(std::vector<float>{1, 2, 3}, {3})}});
  std::string bytes = read_file(path("a.pth"));
  const float three = 3;
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&three), 4));
  bytes[at] = 1;
  EXPECT_MENTIONS(refusal(bytes), "x.pth: damaged: 'model/data/0' in it does not match its checksum");
}

TEST_F(PyTorchFileTest, SmallFilesThatClaimMuchAreRefused) {
  const auto pickled = [&](const std::string& pickle) {
    ZipWriter zip(path("claim.pth"));
    zip.add("a/data.pkl", "\x80\x02" + pickle + ".");
    zip.add("a/data/0", std::string(16, '\0'));
    zip.commit();
    return refusal_of(path("claim.pth"));
  };
  const auto number = [](uint64_t x) { return "\x8a\x08" + std::string(reinterpret_cast<const char*>(&x), 8); };
  const auto tensor = [&](uint64_t count, uint64_t offset, uint64_t size, uint64_t stride) {
    const auto text = [](const std::string& x) { return "X"s + char(x.size()) + "\0\0\0"s + x; };
    return "}" + text("x") + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" +
           text("0") + text("cpu") + number(count) + "tQ" + number(offset) + "(" + number(size) + "t(" +
           number(stride) + "t\x89}tRs";
  };
  EXPECT_EQ(pickled(tensor(4, 0, 4, 1)), "");
  EXPECT_EQ(pickled(tensor(4, 1, 2, 2)), "");
  EXPECT_MENTIONS(pickled(tensor(1ull << 40, 0, 1ull << 40, 1)), "data/0 has 16 bytes");
  EXPECT_MENTIONS(pickled(tensor(5, 0, 4, 1)), "data/0 has 16 bytes, which is not what its 5 numbers need");
  for (const std::string& outside :
       {tensor(4, 1, 4, 1), tensor(4, 0, 2, 4), tensor(4, 0, 5, 0), tensor(4, 0, 1ull << 62, 1ull << 62),
        tensor(4, 1ull << 62, 4, 1), tensor(4, 0, 2, 1ull << 63)})
    EXPECT_NE(pickled(outside), "");
  std::string negative = tensor(4, 0, 4, 1);
  negative.replace(negative.find("tQ") + 2, number(0).size(), "\x8a\1\xff");  // -1, in one byte
  EXPECT_MENTIONS(pickled(negative), "has no number where one belongs");
  for (const std::string& absent : {tensor(4, 0, 1, 1) + "00", "}q\0h\x07"s, std::string(1000, '('), "K\1s"s, "t"s})
    EXPECT_MENTIONS(pickled(absent), "uses a value that it does not have");
  EXPECT_MENTIONS(pickled("cos\nsystem\n(X\4\0\0\0truetR"s), "has no state_dict");
  EXPECT_MENTIONS(pickled("cos\nsystem\n(i"), "has the instruction 105, which no file of tensors needs");
  EXPECT_MENTIONS(pickled("(K\1d"), "has a key without a value");
  EXPECT_MENTIONS(pickled("N}b"), "has no state_dict");
  // A dict that has itself, a module that has itself, and modules whose number doubles with each level.
  EXPECT_MENTIONS(pickled("}q\0X\1\0\0\0ah\0s"s), "has no state_dict, only 'a'");
  const std::string module = "cm\nN\n)\x81", modules = "}X\x08\0\0\0_modules}"s;
  EXPECT_MENTIONS(pickled(module + "q\0"s + modules + "X\1\0\0\0ah\0ssb"s), "too many modules in each other");
  std::string doubled = module + "}b";
  for (int level = 0; level < 30; ++level)
    doubled = module + modules + "X\1\0\0\0a"s + doubled + "q" + char(level) + "sX\1\0\0\0bh"s + char(level) + "ssb";
  EXPECT_MENTIONS(pickled(doubled), "too many modules in each other");
  // A little text that stands for much: a long name again and again, a dict in many dicts, many memos.
  const std::string long_name = "X\xff\xff\0\0"s + std::string(0xffff, 'n');
  EXPECT_MENTIONS(pickled(long_name + "q\0h\0\x93"s), "has a class without a short name");
  EXPECT_MENTIONS(pickled("(X\7\0\0\0storageca\nb\n"s + long_name +
                          "X\3\0\0\0cpuK\1tQq\0(}X\1\0\0\0xctorch._utils\n"
                          "_rebuild_tensor_v2\n(h\0K\0))tRs"s),
                  "a storage without a type and a short name");
  std::string shared = "}(";
  for (int i = 0; i < 5000; ++i) shared += "X\4\0\0\0"s + concat(1000 + i) + "N";
  shared += "uq\0}("s;
  for (int i = 0; i < 5000; ++i) shared += "X\4\0\0\0"s + concat(1000 + i) + "h\0"s;
  EXPECT_MENTIONS(pickled(shared + "u"), "too many dicts in each other");
  EXPECT_MENTIONS(pickled("N" + std::string(kMaxPickled + 1, '\x94')), "has too many values");
}

// A safetensors header of some sizes begins as a pickle does.
TEST_F(PyTorchFileTest, SafetensorsAreNotTakenForPickles) {
  int alike = 0;
  for (size_t length = 1; length < 1500; length += 8) {
    write_safetensors(path("x.safetensors"), {{"x", ones({2})}}, {{"text", std::string(length, 't')}});
    EXPECT_FALSE(is_pytorch(path("x.safetensors"))) << length;
    ASSERT_EQ(read_weights_header(path("x.safetensors")).tensors.size(), 1u) << length;
    alike += read_file(path("x.safetensors"))[0] == '\x80';
  }
  EXPECT_GT(alike, 3);
  EXPECT_TRUE(is_pytorch(kFiles + "types.pth") && is_pytorch(kFiles + "legacy4.pth"));
  EXPECT_FALSE(is_pytorch(kFiles) || is_pytorch(kFiles + "absent.pth"));
}

TEST_F(PyTorchFileTest, WhatIsWrittenIsReadAgain) {
  std::vector<NamedTensor> all;
  for (const DType dtype :
       {DType::b8, DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64})
    all.push_back({concat("t.", dtype), cast(from_host(std::vector<float>{0, 1, 1, 0, 1, 0}, {2, 3}), dtype)});
  all.push_back({"turned", permute(all[6].tensor, {1, 0})});
  all.push_back({"scalar", zeros({})});
  all.push_back({"caf\xc3\xa9", zeros({0, 4})});
  write_pytorch(path("a.pth"), all, {{"ringtape.model", "mlp"}, {"quote", "\"\n"}});
  const std::map<std::string, Tensor> back = read(path("a.pth"));
  ASSERT_EQ(back.size(), all.size());
  for (const NamedTensor& t : all) {
    EXPECT_EQ(back.at(t.name).dtype(), t.tensor.dtype()) << t.name;
    EXPECT_EQ(back.at(t.name).shape(), t.tensor.shape()) << t.name;
    EXPECT_EQ(numbers(back.at(t.name)), numbers(t.tensor)) << t.name;
  }
  EXPECT_EQ(PyTorchFile(path("a.pth")).header().metadata.at("quote"), "\"\n");
  write_pytorch(path("b.pth"), all, {{"ringtape.model", "mlp"}, {"quote", "\"\n"}});
  EXPECT_EQ(read_file(path("a.pth")), read_file(path("b.pth")));
  EXPECT_THROW(write_pytorch(path("c.pth"), {{"x", zeros({})}, {"x", zeros({})}}), UsageError);
  EXPECT_FALSE(fs::exists(path("c.pth")));

  // Numbers begin at multiples of 64 bytes.
  const std::string bytes = read_file(path("a.pth"));
  ZipReader zip(path("a.pth"));
  for (const ZipEntry& entry : zip.entries()) {
    uint16_t name = 0, extra = 0;
    std::memcpy(&name, bytes.data() + entry.header + 26, 2), std::memcpy(&extra, bytes.data() + entry.header + 28, 2);
    EXPECT_EQ((entry.header + 30 + name + extra) % 64, 0u) << entry.name;
  }
}

TEST_F(PyTorchFileTest, MoreFilesThanA16BitNumberCounts) {
  ZipWriter out(path("many.zip"));
  for (int i = 0; i < 70'000; ++i) out.add(std::to_string(i), i % 7 == 0 ? "seven" : "");
  out.commit();
  ZipReader in(path("many.zip"));
  ASSERT_EQ(in.entries().size(), 70'000u);
  EXPECT_EQ(in.read(*in.find("69993"), 10), "seven");
  EXPECT_EQ(in.find("70000"), nullptr);
  EXPECT_THROW(in.read(*in.find("69993"), 4), FormatError);
}

TEST_F(PyTorchFileTest, SomeTensorsOfAFileAreRead) {
  for (const char* const name : {"a.pth", "a.pt", "a.safetensors"}) {
    ASSERT_TRUE(is_weights_name(name));
    write_weights(path(name), {{"x", ones({3})}, {"y", zeros({2, 2})}}, {{"k", "v"}});
    EXPECT_EQ(read_weights_header(path(name)).metadata.at("k"), "v");
    std::vector<std::string> got;
    size_t tensors = 0;
    read_weights(
        path(name), [&](const SafetensorsHeader& header) { tensors = header.tensors.size(); },
        [](const std::string& tensor) { return tensor == "y"; },
        [&](const TensorEntry& entry, Part rows, const Tensor& x) {
          got.push_back(entry.name);
          EXPECT_EQ(rows.size(), 2);
          EXPECT_EQ(numbers(x), (std::vector<double>{0, 0, 0, 0}));
        });
    EXPECT_EQ(tensors, 2u);
    EXPECT_EQ(got, std::vector<std::string>{"y"});
  }
  EXPECT_FALSE(is_weights_name("a.onnx"));
}

}  // namespace
}  // namespace ringtape
