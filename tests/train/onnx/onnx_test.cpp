// Networks as models of ONNX: what is in the file, and where python3 has onnxruntime, what it computes from it.
#include <cstring>
#include <set>

#include "autograd/create.h"
#include "autograd/op.h"
#include "nn/nn.h"
#include "tests/support/cli_command.h"
#include "tests/support/processes.h"
#include "train/io/npy.h"
#include "train/model/models.h"
#include "train/onnx/call.h"
#include "train/onnx/export.h"
#include "train/weights/weights.h"

namespace ringtape {
namespace {

// The fields of a protobuf message by number: whole numbers, or the bytes of anything else.
struct Message {
  std::multimap<int, std::string> texts;
  std::multimap<int, int64_t> numbers;

  explicit Message(const std::string& bytes) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t x = 0;
      for (int shift = 0; at < bytes.size(); shift += 7) {
        const auto byte = uint8_t(bytes[at++]);
        x |= uint64_t(byte & 127) << shift;
        if (byte < 128) break;
      }
      return x;
    };
    const auto take = [&](size_t size) {
      at += size;
      return bytes.substr(at - size, size);
    };
    while (at < bytes.size()) {
      const uint64_t key = varint();
      const int number = int(key / 8);
      if (key % 8 == 0) numbers.emplace(number, int64_t(varint()));
      else texts.emplace(number, take(key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : varint()));
    }
  }
  std::vector<std::string> all(int number) const {
    std::vector<std::string> out;
    for (auto [i, end] = texts.equal_range(number); i != end; ++i) out.push_back(i->second);
    return out;
  }
  std::vector<int64_t> list(int number) const {
    std::vector<int64_t> out;
    for (auto [i, end] = numbers.equal_range(number); i != end; ++i) out.push_back(i->second);
    return out;
  }
  std::string text(int number) const { return all(number).at(0); }
  Message message(int number) const { return Message(text(number)); }
};

// A network of one function, without weights.
class Function : public nn::Module {
 public:
  using F = std::function<Tensor(const Tensor&)>;
  explicit Function(F f) : f_(std::move(f)) {}
  Tensor forward(const Tensor& x) override { return f_(x); }
  std::string str() const override { return "Function"; }

 private:
  F f_;
};

std::string model_of(nn::Module& network, const Shape& image, const std::string& output = "logits") {
  return onnx::model_of(network, [&](const Tensor& x) { return network(x); }, image, output,
                        {{"ringtape.mean", "[0.5]"}});
}

// Statistics that are not those of a new network.
void make_up_statistics(nn::Module& network) {
  const NoGrad no_grad;
  for (const nn::Named& b : nn::named_buffers(network))
    if (b.name.ends_with("running_mean")) *b.tensor = rand(b.tensor->shape(), -0.5, 0.5);
    else if (b.name.ends_with("running_var")) *b.tensor = rand(b.tensor->shape(), 0.5, 2);
  network.train(false);
}

std::unique_ptr<nn::Module> small(const ModelEntry& entry, int64_t classes = 7) {
  ModelSpec spec{.image = entry.image, .classes = classes, .settings = entry.settings};
  for (const auto& [name, value] :
       {std::pair<const char*, int64_t>{"width", 4}, {"hidden", 8}, {"depth", 10}, {"widen", 1}, {"heads", 2}})
    if (const auto field = find_field(spec.settings, name)) *std::get<int64_t*>(*field) = value;
  return entry.make(spec);
}

TEST(Onnx, AFileHasWeightsNodesAndMetadata) {
  manual_seed(1);
  nn::ResNet network({.blocks = {1, 1, 1, 1}, .block = nn::Block::bottleneck, .classes = 7, .width = 2});
  make_up_statistics(network);
  const std::string bytes = model_of(network, {32, 48, 3});
  EXPECT_TRUE(bytes == model_of(network, {32, 48, 3})) << "the bytes differ";
  const Message model(bytes), graph = model.message(7);
  EXPECT_EQ(model.list(1), std::vector<int64_t>{8});
  EXPECT_EQ(model.message(8).list(2), std::vector<int64_t>{17});
  EXPECT_EQ(model.message(14).text(1) + model.message(14).text(2), "ringtape.mean[0.5]");

  std::map<std::string, int> types;
  std::set<std::string> made{"images"};
  for (const std::string& initializer : graph.all(5)) made.insert(Message(initializer).text(8));
  for (const std::string& text : graph.all(1)) {
    const Message node(text);
    ++types[node.text(4)];
    for (const std::string& input : node.all(1)) EXPECT_TRUE(made.contains(input)) << input;
    EXPECT_TRUE(made.insert(node.text(2)).second) << node.text(2);
  }
  EXPECT_EQ(types,
            (std::map<std::string, int>{
                {"Add", 4}, {"BatchNormalization", 17}, {"Conv", 17}, {"Gemm", 1}, {"ReduceMean", 1}, {"Relu", 13}}));
  EXPECT_TRUE(made.contains("logits"));

  std::map<std::string, Tensor> weights;
  for (const NamedTensor& t : weights_of(network))
    if (!t.name.ends_with("num_batches_tracked")) weights.emplace(t.name, contiguous(t.tensor));
  EXPECT_EQ(graph.all(5).size(), weights.size());
  for (const std::string& text : graph.all(5)) {
    const Message initializer(text);
    const Tensor& want = weights.at(initializer.text(8));
    EXPECT_EQ(initializer.list(1), std::vector<int64_t>(want.shape().begin(), want.shape().end()));
    EXPECT_EQ(initializer.text(9),
              std::string(reinterpret_cast<const char*>(want.data<float>()), size_t(4 * want.size())));
  }

  const auto sizes = [](const Message& port) {
    std::string out = port.text(1);
    for (const std::string& size : port.message(2).message(1).message(2).all(1)) {
      const Message dim(size);
      out += dim.texts.empty() ? concat(" ", dim.list(1)[0]) : " " + dim.text(2);
    }
    return out;
  };
  EXPECT_EQ(sizes(graph.message(11)), "images N 3 32 48");
  EXPECT_EQ(sizes(graph.message(12)), "logits N 7");
}

TEST(Onnx, WhatCannotBeWrittenIsNamed) {
  const auto message = [](const Function::F& f) {
    Function network(f);
    return test::message_of<UsageError>([&] { model_of(network, {4, 4, 3}); });
  };
  EXPECT_EQ(message([](const Tensor& x) { return cumsum(flatten(x), 1); }),
            "ONNX: the operation cumsum cannot be written; export .safetensors");
  EXPECT_EQ(
      message([](const Tensor& x) {
        return relu(slice(x, 0, 0, 1)) + x.window({1, 4, 4, 3}, x.strides(), 48);
      }),
      "ONNX: the operation add cannot be written: an input depends on the images, but comes from no operation that "
      "is recorded");
  EXPECT_EQ(message([](const Tensor& x) { return batch_norm(x, {}, {}, {}); }),
            "ONNX: the operation batch_norm cannot be written: it normalises by the statistics of the batch");
  EXPECT_EQ(message([](const Tensor& x) { return clamp(x, 0, double(x.dim(0))); }),
            "ONNX: the operation clamp cannot be written: its high depends on the images");
  EXPECT_EQ(message([](const Tensor& x) { return x.dim(0) == 2 ? x : relu(x); }),
            "ONNX: the network's operations depend on the number or the content of the images");
  EXPECT_EQ(message([](const Tensor& x) {
              return expand(ones({1, 3}), {2 * x.dim(0), 3}) + mean(x);
            }),
            "ONNX: the operation expand cannot be written: it repeats more than once for each image");
  EXPECT_EQ(message([](const Tensor& x) { return scaled_dot_product_attention(x, x, x, true); }),
            "ONNX: the operation scaled_dot_product_attention cannot be written: it is causal");
  EXPECT_EQ(message([](const Tensor& x) { return avg_pool2d(x, 2, 2, square_window(1, 0, 2)); }),
            "ONNX: the operation avg_pool2d cannot be written: it has dilations");
}

class OnnxRuntime : public testing::Test {
 protected:
  // For the script: the model, some images and what the network makes of them.
  void add(const std::string& name, nn::Module& network, const Shape& image) {
    const std::string path = concat(folder_.path(), "/", name);
    write_file(path + ".onnx", model_of(network, image));
    const NoGrad no_grad;
    const Tensor x = rand({5, image[0], image[1], image[2]}, -1, 1);
    write_npy(path + ".x.npy", contiguous(in_file_order(x)));
    const OpTrace trace;
    write_npy(path + ".y.npy", contiguous(network(x)));
    for (const TracedOp& op : trace.ops()) seen_.insert(op.name);
  }
  void expect_the_same() const {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "python3 is no program of AddressSanitizer";
#endif
    const std::string command = "python3 " RINGTAPE_SOURCE_DIR "/tests/train/onnx/onnx_runtime.py ";
    const int status = std::system((command + folder_.path()).c_str());
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "python3 has no onnx or onnxruntime";
    EXPECT_EQ(status, 0);
  }
  test::TemporaryFolder folder_;
  std::set<std::string> seen_;  // operations of the networks
};

TEST_F(OnnxRuntime, ComputesTheLogitsOfEveryModel) {
  manual_seed(2);
  for (const ModelEntry& entry : models()) {
    const auto network = small(entry);
    make_up_statistics(*network);
    add(entry.name, *network, entry.image);
  }
  nn::ResNet large({.classes = 4, .stem = nn::Stem::imagenet, .width = 4});
  make_up_statistics(large);
  add("imagenet_stem", large, {64, 96, 3});
  expect_the_same();
}

TEST_F(OnnxRuntime, ComputesEveryOperation) {
  manual_seed(3);
  const Tensor w = rand({6, 3, 3, 3}, -1, 1), row = rand({3}, 0.5, 1), rows = rand({48, 5}, -1, 1), bias = rand({6});
  const Window wide{2, 1, 1, 0, 2, 1};
  const std::pair<const char*, Function::F> functions[] = {
#define X(op, y, dx, needs, low, high, ...) \
  {#op, [](const Tensor& x) { return op(x * (((high) - (low)) / 2.0) + ((high) + (low)) / 2.0); }},
      RT_UNARY_OPS(X)
#undef X
          {"floor", [](const Tensor& x) { return floor(x * 3); }},
      {"ceil", [](const Tensor& x) { return ceil(x * 3); }},
      {"round", [](const Tensor& x) { return round(x * 3); }},
      {"sign", [](const Tensor& x) { return sign(x); }},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.3); }},
      {"elu", [](const Tensor& x) { return elu(x, 0.7); }},
      {"arithmetic", [](const Tensor& x) { return (1 - x) * x / 3.5 + maximum(x, 0.1) - minimum(x, -0.1); }},
      {"pow", [](const Tensor& x) { return pow(x + 2, 1.5); }},
      {"row", [=](const Tensor& x) { return relu(x * row) + row; }},
      {"row_of_channels_first", [=](const Tensor& x) { return max_pool2d(x, 2, 2, {}) * row; }},
      {"clamp", [](const Tensor& x) { return clamp(x, -0.3, 0.4); }},
      {"conv2d", [=](const Tensor& x) { return conv2d(x, w, bias, wide); }},
      {"grouped",
       [](const Tensor& x) {
         return conv2d(x, full({6, 3, 3, 1}, 0.2), {}, square_window(2, 1));
       }},
      {"max_pool2d",
       [](const Tensor& x) {
         return max_pool2d(x, 3, 2, {2, 1, 1, 0});
       }},
      {"avg_pool2d",
       [](const Tensor& x) {
         return avg_pool2d(x, 3, 2, {2, 1, 1, 0});
       }},
      {"pad2d", [](const Tensor& x) { return pad2d(x, 1, 2, 3, 0, 0.5); }},
      {"batch_norm",
       [=](const Tensor& x) {
         return batch_norm(flatten(x), {}, {}, {mean(rows, {1}), square(rows.detach()).window({48}, {5}), {}},
                           {.training = false});
       }},
      {"layer_norm", [=](const Tensor& x) { return layer_norm(x, row, row * 2); }},
      {"attention", [](const Tensor& x) { return scaled_dot_product_attention(x * 3, x, square(x)); }},
      {"self_attention",
       [](const Tensor& x) {
         return self_attention(reshape(x, {x.dim(0), 4, 12}) * 4, 2);
       }},
      {"repeated",
       [=](const Tensor& x) {
         return expand(row, {x.dim(0), 16, 3}) + reshape(x, {x.dim(0), 16, 3});
       }},
      {"matmul", [=](const Tensor& x) { return matmul(flatten(x), rows); }},
      {"linear", [=](const Tensor& x) { return linear(flatten(x), transpose(rows), {}, Activation::relu); }},
      {"softmax", [](const Tensor& x) { return softmax(flatten(relu(x)), -1); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }},
      {"mean",
       [](const Tensor& x) {
         return mean(conv2d(x, full({6, 1, 1, 3}, 0.2)), {1, 2});
       }},
      {"mean_of_channels",
       [](const Tensor& x) {
         return mean(x, {3}) + mean(x, {3, 1}, true).detach() * 0;
       }},
      {"sum",
       [](const Tensor& x) {
         return sum(x, {2, 3}, true);
       }},
      {"max",
       [](const Tensor& x) {
         return max(x, {1, 2});
       }},
      {"min", [](const Tensor& x) { return min(x, {-1}); }},
      {"prod",
       [](const Tensor& x) {
         return prod(x, {1, 3});
       }},
      {"logsumexp",
       [](const Tensor& x) {
         return logsumexp(x, {1, 2, 3});
       }},
      {"slice",
       [](const Tensor& x) {
         return slice(relu(conv2d(x, full({6, 1, 1, 3}, 0.2))), 3, 1, -1, 2);
       }},
      {"slice_of_images", [](const Tensor& x) { return slice(x, 0, 1, kToEnd); }},
      {"concat",
       [](const Tensor& x) {
         return concat({x, square(x), x}, -1);
       }},
      {"stack",
       [](const Tensor& x) {
         return stack({flatten(x), flatten(x)}, 1);
       }},
      {"expand",
       [](const Tensor& x) {
         return expand(mean(x, {1, 2}, true), x.shape());
       }},
      {"tokens",
       [](const Tensor& x) {
         return permute(reshape(x, {x.dim(0), 16, 3}), {0, 2, 1});
       }},
      {"all_pixels",
       [](const Tensor& x) {
         return reshape(x, {-1, 3}) * 2;
       }},
      {"nchw", [](const Tensor& x) { return flatten(to_nchw(relu(x))); }},
      {"nhwc", [](const Tensor& x) { return to_nhwc(to_nchw(x)) * 2; }},
      {"contiguous", [](const Tensor& x) { return contiguous(transpose(x)) * 2; }}};
  for (const auto& [name, f] : functions) {
    Function network(f);
    add(name, network, {4, 4, 3});
  }
  for (const Op& op : ops()) EXPECT_TRUE(seen_.contains(op.name) || !onnx::writer_of(op.name)) << op.name;
  expect_the_same();
}

using OnnxExport = CliTest;

TEST_F(OnnxExport, IsACommand) {
  const std::string work = (folder_ / "work/").string();
  CliResult r = run("train --model resnet18 --width 2 --train-size 64 --test-size 20 --val-size 0 --epochs 1 --run r");
  ASSERT_EQ(r.code, 0) << r.err;
  r = run("export r --out r.onnx --json");
  ASSERT_EQ(r.code, 0) << r.err;
  r = run("export r --out features.onnx --backbone");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out, "saved  features.onnx: images (N, C, H, W), normalised -> features\n");
  EXPECT_FALSE(fs::exists(work + "r.md"));
  const Message whole(read_file(work + "r.onnx")), features(read_file(work + "features.onnx"));
  EXPECT_EQ(whole.message(7).message(12).text(1), "logits");
  EXPECT_EQ(features.message(7).message(12).text(1), "features");
  std::map<std::string, std::string> metadata;
  for (const std::string& text : whole.all(14)) metadata[Message(text).text(1)] = Message(text).text(2);
  EXPECT_MENTIONS(metadata["ringtape.classes"], "circle");
  EXPECT_MENTIONS(metadata["ringtape.mean"], "0.3");
  EXPECT_EQ(metadata["ringtape.model"], "resnet18");
}

TEST_F(OnnxExport, AnotherNameIsRefused) {
  expect_error("export r --out r.onx", 2, "needs --out FILE.safetensors, FILE.pth or FILE.onnx");
}

}  // namespace
}  // namespace ringtape
