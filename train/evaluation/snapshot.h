#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace ringtape {

class Json;  // train/io/json.h

// What a network makes of some images at one moment of its training, for people to look at. Tensors are on cpu:0;
// parts that do not apply are undefined. Index: of one of `images`.
struct Snapshot {
  int64_t epoch = 0, step = 0;
  std::string split;                 // of the images that it was computed for: "val", "test", "knn"
  std::vector<std::string> classes;  // names

  Tensor images, labels;  // u8 (N, H, W, C) and i64 (N): what the other parts show

  // A network that learns labels: the counts [label][prediction], i64 (C, C); and for some images, the most confident
  // mistakes first, index and prediction, i64 (S), with its probability, f32 (S).
  Tensor confusion, samples, predicted, confidence;

  // A self-supervised method. Of images with the indices `viewed`, i64 (V), the random views of this epoch, each u8 (V,
  // h, w, C). Features of images on their two principal components, f32 (M, 2), with labels, i64 (M), and the shares of
  // the variance that these explain. Queries, i64 (Q), and the images with the most similar features, i64 (Q, K), with
  // the cosine, f32 (Q, K).
  Tensor viewed, map, map_labels, queries, neighbours, similarity;
  std::vector<Tensor> views;
  std::array<double, 2> explained = {};

  Tensor filters;  // of the first layer, u8 (F, h, w, C), each scaled to its own range

  bool empty() const { return !images.defined(); }
};

inline constexpr const char* kSnapshots = "snapshots";  // the folder in a run's folder

std::string snapshot_name(const Snapshot& snapshot);  // "epoch-0003", "test"
std::string snapshot_path(const std::string& run, const std::string& name);
// The epoch of such a name, INT64_MAX for "test"; 0: it is no name of a snapshot.
int64_t epoch_of_snapshot(const std::string& name);
std::vector<std::string> snapshots_in(const std::string& run);  // names, oldest first; throws IoError

// A safetensors file, written atomically. Throws IoError.
void write_snapshot(const std::string& path, const Snapshot& snapshot);
// As docs/view.md describes it. Throws IoError; FormatError for a file that does not hold a snapshot.
Json read_snapshot(const std::string& path);

}  // namespace ringtape
