// A trained network from its file, for images of any program.
#include "train/inference/predictor.h"

#include <unistd.h>

#include <filesystem>
#include <thread>

#include "tests/support/predictor_files.h"
#include "tests/support/support.h"
#include "train/data/image/image_file.h"
#include "train/data/normalize.h"
#include "train/io/file.h"
#include "train/io/weights_file.h"
#include "train/weights/trained_on.h"
#include "train/weights/weights.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::kDeviation;
using test::kMean;
using test::pixels_of;
using test::same_bytes;
using test::values;

using PredictorTest = test::PredictorFiles;

// To 1e-5 of the largest; of transformers, which divide by the small deviations of tokens, 1e-4.
void expect_logits(const Tensor& y, const Tensor& want, const std::string& what) {
  double largest = 0;
  for (const double x : values(want)) largest = std::max(largest, std::abs(x));
  test::expect_close(y, want, 0, (what.starts_with("vit") ? 1e-4 : 1e-5) * largest, what);
}

TEST_F(PredictorTest, ComputesWhatTheNetworkDoesInEvaluation) {
  for (const ModelEntry& entry : models()) {
    const std::string name = entry.name;
    const auto network = write("model.safetensors", name);
    const Predictor predictor(path("model.safetensors"));
    EXPECT_EQ(predictor.model_name(), name);
    EXPECT_EQ(predictor.image_shape(), (Shape{28, 28, 3}));
    const Tensor pixels = pixels_of(3), images = normalized(pixels, byte_table(kMean, kDeviation));
    const NoGrad no_grad;
    const Tensor want = (*network)(images);
    const Tensor logits = predictor.logits(pixels);
    expect_logits(logits, want, name);
    EXPECT_FALSE(logits.node()) << name;
    EXPECT_TRUE(same_bytes(predictor.logits(images), logits)) << name << ": normalised before";
    expect_logits(predictor.features(pixels), classifier(*network, name).features(images), name);
    const Tensor probabilities = softmax(cast(logits, DType::f64));
    const std::vector<Predictions> all = predictor(pixels, 2);
    ASSERT_EQ(all.size(), 3u);
    for (int64_t i = 0; i < 3; ++i) {
      const auto row = probabilities.span<double>().subspan(size_t(i) * 7, 7);
      ASSERT_EQ(all[size_t(i)].size(), 2u);
      const Prediction best = all[size_t(i)][0], second = all[size_t(i)][1];
      EXPECT_EQ(best.index, std::ranges::max_element(row) - row.begin()) << name;
      EXPECT_EQ(best.name, std::string(1, char('a' + best.index)));
      EXPECT_EQ(best.probability, row[size_t(best.index)]);
      EXPECT_EQ(second.probability, row[size_t(second.index)]);
      EXPECT_GE(best.probability, second.probability);
    }
  }
}

TEST_F(PredictorTest, ReadsFilesAsTheTrainingDid) {
  const auto network = write("model.pth", "resnet18", {{"ringtape.scaled", "32"}, {"ringtape.filter", "\"bicubic\""}});
  const Predictor predictor(path("model.pth"));
  const std::string image = write_image("large.ppm", 60, 45), content = read_file(image);
  const auto file = std::as_bytes(std::span(content));
  const Image want = read_image_as(image, {28, 28}, {.resize = 32, .interpolation = Interpolation::bicubic});
  const Tensor pixels = predictor.read(image);
  EXPECT_TRUE(same_bytes(pixels, from_host(want.rgb, {1, 28, 28, 3})));
  EXPECT_TRUE(same_bytes(predictor.decode(file), pixels));
  const Predictions best = predictor(image), of_content = predictor(file), of_pixels = predictor(pixels)[0];
  ASSERT_EQ(best.size(), 5u);
  EXPECT_EQ(predictor(image, 100).size(), 7u);
  for (size_t i = 0; i < best.size(); ++i)
    for (const Predictions& other : {of_content, of_pixels}) {
      EXPECT_EQ(other[i].index, best[i].index);
      EXPECT_EQ(other[i].probability, best[i].probability);
    }
  const NoGrad no_grad;
  expect_logits(predictor.logits(pixels), (*network)(normalized(pixels, byte_table(kMean, kDeviation))), "a .pth");
}

TEST_F(PredictorTest, TakesOtherSizesWhereTheNetworkDoes) {
  const auto network = write("model.safetensors");
  const Predictor predictor(path("model.safetensors"));
  const NoGrad no_grad;
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{33, 47}, {9, 31}, {64, 64}}) {
    const Tensor pixels = pixels_of(2, height, width), logits = predictor.logits(pixels);
    expect_logits(logits, (*network)(normalized(pixels, byte_table(kMean, kDeviation))), concat(height, "x", width));
  }
  write("mlp.safetensors", "mlp");
  EXPECT_MENTIONS(
      test::message_of<ShapeError>([&] { (void)Predictor(path("mlp.safetensors")).logits(pixels_of(1, 28, 27)); }),
      "expected images (N, 28, 28, 3), got (1, 28, 27, 3)");
}

// In any batch, by any number of threads.
TEST_F(PredictorTest, GivesAnImageTheSameBytesEverywhere) {
  for (const char* model : {"resnet18", "wide_resnet", "cifar_net", "mlp"}) {
    write("model.safetensors", model);
    const Predictor predictor(path("model.safetensors"));
    const Tensor pixels = pixels_of(19), all = predictor.logits(pixels);
    for (const int threads : {1, 2, 3})
      test::with_threads(threads, [&] {
        EXPECT_TRUE(same_bytes(predictor.logits(pixels), all)) << model << ", " << threads << " threads";
        for (const auto& [begin, end] : {std::pair{0, 1}, {7, 8}, {3, 5}, {2, 18}})
          EXPECT_TRUE(same_bytes(predictor.logits(contiguous(slice(pixels, 0, begin, end))),
                                 contiguous(slice(all, 0, begin, end))))
              << model << ", " << threads << " threads, images " << begin << " to " << end;
      });
  }
}

TEST_F(PredictorTest, IsUsedByManyThreadsAtOnce) {
  write("model.safetensors");
  const Predictor predictor(path("model.safetensors"));
  const Tensor pixels = pixels_of(6), logits = predictor.logits(pixels), features = predictor.features(pixels);
  const Predictions first = predictor(pixels)[0];
  std::vector<std::thread> threads;
  std::vector<int> right(6);
  for (size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      set_threads(1 + int(t % 2));
      for (int i = 0; i < 3; ++i) {
        const auto row = int64_t(t);
        right[t] += same_bytes(predictor.logits(pixels), logits) && same_bytes(predictor.features(pixels), features) &&
                    same_bytes(predictor.logits(contiguous(slice(pixels, 0, row, row + 1))),
                               contiguous(slice(logits, 0, row, row + 1))) &&
                    predictor(pixels)[0][0].probability == first[0].probability;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, std::vector<int>(6, 3));
}

TEST_F(PredictorTest, ComputesIn16Bits) {
  const auto network = write("model.safetensors");
  const Tensor pixels = pixels_of(4), want = Predictor(path("model.safetensors")).logits(pixels);
  double largest = 0;
  for (const double x : values(want)) largest = std::max(largest, std::abs(x));
  for (const auto& [precision, tolerance] : {std::pair{DType::bf16, 0.05}, {DType::f16, 0.01}}) {
    const Tensor y = Predictor(path("model.safetensors"), {.precision = precision}).logits(pixels);
    EXPECT_EQ(y.dtype(), DType::f32);
    test::expect_close(y, want, 0, tolerance * largest, std::string(name_of(precision)));
    EXPECT_FALSE(same_bytes(y, want)) << precision;
  }
}

TEST_F(PredictorTest, AveragesOverCopies) {
  write("model.safetensors");
  const Predictor plain(path("model.safetensors")), both(path("model.safetensors"), {.copies = "flip"});
  const Tensor pixels = pixels_of(2), mirrored = flip(pixels, 2);
  expect_logits(both.logits(pixels), (plain.logits(pixels) + plain.logits(mirrored)) * 0.5, "flip");
}

TEST_F(PredictorTest, RefusesWhatItCannotUse) {
  using test::message_of;
  write("model.safetensors");
  const auto refused = [&](const std::string& file) { return message_of<UsageError>([&] { Predictor{path(file)}; }); };
  EXPECT_MENTIONS(message_of<IoError>([&] { Predictor{path("nowhere")}; }), "there is no run and no file");
  write("unknown.safetensors", "mlp", {{"ringtape.image", ""}});
  EXPECT_MENTIONS(refused("unknown.safetensors"), "does not say of which size its images were");
  write("colours.safetensors", "mlp", {{"ringtape.mean", "[0.5]"}, {"ringtape.deviation", "[1]"}});
  EXPECT_MENTIONS(refused("colours.safetensors"), "its images have 3 channels, but are normalised by 1");
  write("other.safetensors", "mlp", {{"ringtape.model", "resnet18"}});
  EXPECT_MENTIONS(message_of<FormatError>([&] { Predictor{path("other.safetensors")}; }), "trained with another");
  write("names.safetensors", "resnet18", {{"ringtape.classes", "[\"a\"]"}});
  EXPECT_MENTIONS(message_of<FormatError>([&] { Predictor{path("names.safetensors")}; }),
                  "its last layer has 7 classes, but 1 have names");

  const Predictor predictor(path("model.safetensors"));
  EXPECT_MENTIONS(message_of<ShapeError>([&] {
                    (void)predictor.logits(pixels_of(1).window({28, 28, 3}, {84, 3, 1}));
                  }),
                  "expected images (N, H, W, 3), got (28, 28, 3)");
  EXPECT_MENTIONS(message_of<DTypeError>([&] { (void)predictor.logits(zeros({1, 28, 28, 3}, DType::i64)); }), "u8");
  EXPECT_MENTIONS(message_of<UsageError>([&] { (void)predictor(pixels_of(1), 0); }), "at least one class");
  EXPECT_MENTIONS(message_of<IoError>([&] { (void)predictor(path("nothing.png")); }), "there is no image");
  EXPECT_MENTIONS(message_of<IoError>([&] { (void)predictor.read(folder_.string()); }), "not a file");
  const std::string text = "no image";
  EXPECT_MENTIONS(message_of<FormatError>([&] { (void)predictor(std::as_bytes(std::span(text))); }), "image");
  EXPECT_EQ(predictor(pixels_of(0)).size(), 0u);
}

TEST_F(PredictorTest, HasTheFeaturesOfABackbone) {
  const auto network = write("model.safetensors");
  const Safetensors all = read_safetensors(path("model.safetensors"));
  std::vector<NamedTensor> backbone = all.tensors;
  std::erase_if(backbone, [](const NamedTensor& t) { return t.name.starts_with("fc."); });
  const Tensor pixels = pixels_of(2), want = Predictor(path("model.safetensors")).features(pixels);
  for (const bool names : {false, true}) {
    std::map<std::string, std::string> metadata = all.metadata;
    if (!names) metadata.erase("ringtape.classes");
    write_weights(path("backbone.safetensors"), backbone, metadata);
    const Predictor predictor(path("backbone.safetensors"));
    EXPECT_TRUE(same_bytes(predictor.features(pixels), want)) << names;
    EXPECT_MENTIONS(test::message_of<UsageError>([&] { (void)predictor(pixels); }),
                    names ? "has no last layer; train a last layer" : "knows no classes; train a last layer");
  }
}

}  // namespace
}  // namespace ringtape
