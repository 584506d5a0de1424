#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/trained_models.h"
#include "train/io/file.h"
#include "train/io/weights_file.h"
#include "train/weights/trained_on.h"
#include "train/weights/weights.h"

// Files of weights and images, in a folder of their own.
namespace ringtape::test {

inline const std::vector<float> kMean = {0.4f, 0.5f, 0.6f}, kDeviation = {0.2f, 0.25f, 0.3f};

inline Tensor pixels_of(int64_t count, int64_t height = 28, int64_t width = 28) {
  return cast(rand({count, height, width, 3}, 0, 256), DType::u8);
}

class PredictorFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / concat("ringtape_predictor_", ::getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // A file of weights of images of 28 x 28, and the network that has them. `more`: metadata.
  std::unique_ptr<nn::Module> write(const std::string& file, const std::string& model = "resnet18",
                                    const std::map<std::string, std::string>& more = {}) const {
    const ModelEntry& entry = find_model(model);
    auto network = trained_model(entry, {{28, 28, 3}, 7, small_settings(entry)});
    std::map<std::string, std::string> metadata{{"ringtape.model", model}, {"ringtape.width", "6"},
                                                {"ringtape.heads", "2"},   {"ringtape.hidden", "8"},
                                                {"ringtape.depth", "10"},  {"ringtape.widen", "1"}};
    add_metadata(metadata, {kMean, kDeviation, {"a", "b", "c", "d", "e", "f", "g"}, {28, 28, 3}});
    for (const auto& [key, value] : more) {
      if (value.empty()) metadata.erase(key);
      else metadata[key] = value;
    }
    write_weights(path(file), weights_of(*network), metadata);
    return network;
  }

  // A file of the format PPM.
  std::string write_image(const std::string& name, int64_t height, int64_t width) const {
    const Tensor pixels = pixels_of(1, height, width);
    const auto bytes = pixels.span<uint8_t>();
    write_file(path(name), concat("P6\n", width, " ", height, "\n255\n") + std::string(bytes.begin(), bytes.end()));
    return path(name);
  }

  std::filesystem::path folder_;
};

}  // namespace ringtape::test
