#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace ringtape {

class Json;

struct PredictorOptions {
  std::string weights_key = {};  // which of several sets of weights in a file, as --weights-key has it
  Device device = {};            // that computes
  DType precision = DType::f32;  // of products and convolutions: f32, bf16 or f16; sums and results are f32
  std::string copies = "none";   // of each image, over which outputs are averaged: as --test-copies has it
};

struct Prediction {
  int64_t index;  // of the class in Predictor::classes()
  std::string name;
  double probability;
};
using Predictions = std::vector<Prediction>;   // the likeliest first
Json to_json(const Predictions& predictions);  // [{"class": "cat", "probability": 0.9}, ...]

// A trained network that says of which classes images are. The size of the images, how they are normalised and the
// names of the classes come from the file of weights. It never changes, and all functions may be called by several
// threads at once. Each call computes with threads() of its own thread: a program that has a thread for each of many
// requests begins them with set_threads(1).
//
// Images are files (train/data/image/image_file.h), read as in the training; u8 (N, H, W, C), their pixels, as read()
// returns them; or floating-point (N, H, W, C), normalised already. Results lie on cpu:0.
class Predictor {
 public:
  // `weights`: a run, its folder or its name below runs/; a checkpoint; or a file that `ringtape export` has written.
  // Throws IoError if nothing is there; FormatError for a damaged file or another network's; UsageError if it does not
  // say what its images were; Error if a weight is not finite.
  explicit Predictor(const std::string& weights, const PredictorOptions& options = {});
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;
  ~Predictor();

  // The `top` likeliest classes (or all, if there are fewer) of an image by its path; of the content of a file; of each
  // of several images. Throws as classes(), read() and logits(); Error for outputs that are not finite.
  Predictions operator()(const std::string& path, int64_t top = 5) const;
  Predictions operator()(std::span<const std::byte> file, int64_t top = 5) const;
  std::vector<Predictions> operator()(const Tensor& images, int64_t top = 5) const;

  Tensor logits(const Tensor& images) const;    // f32 (N, classes); throws ShapeError, DTypeError
  Tensor features(const Tensor& images) const;  // f32 (N, F), the input of the last layer; UsageError if there is none

  // One image as pixels of the network's size, u8 (1, H, W, C). Throws as read_image_as(). `name`: for messages.
  Tensor read(const std::string& path) const;
  Tensor decode(std::span<const std::byte> file, const std::string& name = "image") const;

  // The names of the classes in the order of the logits. Throws UsageError if the weights have no last layer, or do not
  // say what its classes are: then there are features alone.
  const std::vector<std::string>& classes() const;
  Shape image_shape() const;                // (H, W, C)
  const std::string& model_name() const;    // "resnet18"
  const std::string& weights_file() const;  // that was read

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace ringtape
