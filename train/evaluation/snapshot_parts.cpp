#include "train/evaluation/snapshot_parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/part.h"
#include "kernels/knn.h"
#include "train/evaluation/pixels.h"
#include "train/evaluation/principal_components.h"

namespace ringtape {
namespace {

constexpr int64_t kShownMistakes = 12, kShownRight = 12;
constexpr int64_t kMaxPoints = 500;  // of the map
constexpr int64_t kQueries = 6, kNeighbours = 8;
constexpr int64_t kViewed = 6, kMaxFilters = 64;
constexpr int64_t kMaxConfused = 1000;  // classes

// Adds images of a data set, with their labels; returns the index of the first.
int64_t add_images(Snapshot& s, const Dataset& data, const std::vector<int64_t>& samples) {
  const Shape one = data.image();
  const Tensor all_labels = data.labels.copy_to(Device{});
  Tensor images({int64_t(samples.size()), one[0], one[1], one[2]}, DType::u8),
      labels({int64_t(samples.size())}, DType::i64);
  for (size_t i = 0; i < samples.size(); ++i) {
    data.copy_image(samples[i], images.data<uint8_t>() + int64_t(i) * one.size());
    labels.data<int64_t>()[i] = all_labels.data<int64_t>()[samples[i]];
  }
  images = smaller(images, kLargestSide);
  const int64_t first = s.images.defined() ? s.images.dim(0) : 0;
  s.images = first > 0 ? concat({s.images, images}, 0) : images;
  s.labels = first > 0 ? concat({s.labels, labels}, 0) : labels;
  return first;
}

Tensor indices(int64_t first, int64_t count) {
  std::vector<int64_t> out(size_t(count), 0);
  std::iota(out.begin(), out.end(), first);
  return from_host(out, {count});
}

Tensor row_of(const Tensor& x, int64_t row) { return x.window({1, x.dim(1)}, {x.dim(1), 1}, row * x.dim(1)); }

struct Prediction {
  size_t at;  // in the list of samples
  int64_t prediction;
  float confidence;
  bool right;
};

// Over all ranks.
Tensor sum_of_ranks(const Tensor& x, comm::ProcessGroup& group) {
  if (group.size() == 1) return x;
  const Tensor sum = to(x, group.transport().device());
  group.all_reduce(sum).wait();
  return to(sum, Device{});
}

// Some of the right ones, spread over them, after the mistakes of the highest confidence.
std::vector<Prediction> shown_of(std::vector<Prediction> all) {
  std::stable_partition(all.begin(), all.end(), [](const Prediction& p) { return !p.right; });
  const auto right = std::find_if(all.begin(), all.end(), [](const Prediction& p) { return p.right; });
  std::stable_sort(all.begin(), right,
                   [](const Prediction& a, const Prediction& b) { return a.confidence > b.confidence; });
  const std::vector<int64_t> some = evenly(all.end() - right, kShownRight);
  for (size_t i = 0; i < some.size(); ++i) right[std::ptrdiff_t(i)] = right[some[i]];
  all.erase(right + std::ptrdiff_t(some.size()), all.end());
  all.erase(all.begin() + std::min<std::ptrdiff_t>(kShownMistakes, right - all.begin()), right);
  return all;
}

}  // namespace

void add_predictions(Snapshot& s, const Dataset& data, const std::vector<int64_t>& samples, const Tensors& outputs,
                     comm::ProcessGroup& group) {
  const NoGrad no_grad;
  const int64_t classes = data.classes;
  s.classes = data.class_names;
  const bool counts = classes <= kMaxConfused;
  const Tensor confusion = zeros(counts ? Shape{classes, classes} : Shape{0, 0}, DType::f64);
  const Tensor labels = data.labels.copy_to(Device{});
  std::vector<Prediction> all;
  size_t at = 0;
  for (const Tensor& batch : outputs) {
    const Tensor probabilities = softmax(cast(batch, DType::f64));
    for (int64_t i = 0; i < batch.dim(0); ++i, ++at) {
      const double* const row = probabilities.data<double>() + i * classes;
      const int64_t label = labels.data<int64_t>()[samples[at]], best = std::max_element(row, row + classes) - row;
      if (counts) confusion.data<double>()[label * classes + best] += 1;
      all.push_back({at, best, std::isfinite(row[best]) ? float(row[best]) : 0, label == best});
    }
  }
  const Tensor sums = counts ? sum_of_ranks(confusion, group) : confusion;
  if (group.rank() > 0) return;
  if (counts) s.confusion = cast(sums, DType::i64);
  all = shown_of(std::move(all));
  if (all.empty()) return;
  std::vector<int64_t> shown, predicted;
  std::vector<float> confidence;
  for (const Prediction& p : all) {
    shown.push_back(samples[p.at]);
    predicted.push_back(p.prediction), confidence.push_back(p.confidence);
  }
  const int64_t n = int64_t(all.size());
  s.samples = indices(add_images(s, data, shown), n);
  s.predicted = from_host(predicted, {n}), s.confidence = from_host(confidence, {n});
}

void add_features(Snapshot& s, const Dataset& test, const std::vector<int64_t>& queried, const Features& queries,
                  const Dataset& train, const std::vector<int64_t>& banked, const Features& bank) {
  const NoGrad no_grad;
  s.classes = test.class_names;
  const std::vector<int64_t> points = evenly(queries.size(), kMaxPoints);
  if (points.size() >= 2) {
    const Tensor rows = from_host(points, {int64_t(points.size())});
    s.map = principal_components(index_select(queries.x, 0, to(rows, queries.x.device())), s.explained);
    s.map_labels = index_select(queries.labels.copy_to(Device{}), 0, rows);
  }
  const int64_t count = std::min(queries.size(), kQueries), k = std::min(bank.size(), kNeighbours);
  if (count == 0 || k == 0) return;
  Tensors rows;
  std::vector<int64_t> shown;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * queries.size() / count;  // spread over all
    rows.push_back(row_of(queries.x, at));
    shown.push_back(queried[size_t(at)]);
  }
  const Tensor similarity({count, k}, DType::f32, queries.x.device()),
      found({count, k}, DType::i64, queries.x.device());
  nearest_rows(similarity, found, l2_normalize(concat(rows, 0), 1), l2_normalize(bank.x, 1));
  s.queries = indices(add_images(s, test, shown), count);
  s.similarity = similarity.copy_to(Device{});
  shown.clear();
  const Tensor nearest = found.copy_to(Device{});
  for (const int64_t row : nearest.span<int64_t>()) shown.push_back(banked[size_t(row)]);
  s.neighbours = reshape(indices(add_images(s, train, shown), count * k), {count, k});
}

void add_views(Snapshot& s, const Dataset& data, std::vector<int64_t> samples, LoaderConfig config, int64_t epoch) {
  samples.resize(std::min(samples.size(), size_t(kViewed)));
  if (samples.empty()) return;
  const auto n = int64_t(samples.size());
  s.viewed = indices(add_images(s, data, samples), n);
  config.batch_size = n, config.shuffle = false, config.workers = 0, config.rank = 0, config.ranks = 1;
  const Loader loader(data, samples, config);
  Loader::Epoch pass = loader.epoch(epoch);
  const Batch* const batch = pass.next();
  for (const Tensor& views : batch->views) s.views.push_back(smaller(pixels_of(views, data), kLargestSide));
}

void add_filters(Snapshot& s, nn::Module& network, const Shape& image) {
  const std::vector<nn::Named> parameters = nn::all_parameters(network);
  if (parameters.empty()) return;
  const Tensor& first = *parameters[0].tensor;
  Shape shape = first.shape();
  if (shape.rank() == 2 && shape[1] == image.size()) shape = {shape[0], image[0], image[1], image[2]};
  if (shape.rank() != 4 || (shape[3] != 1 && shape[3] != 3) || first.dtype() != DType::f32) return;
  const int64_t n = std::min(shape[0], kMaxFilters), each = shape[1] * shape[2] * shape[3];
  const Tensor weights = to(contiguous(slice(first.detach(), 0, 0, n)), Device{}),
               out({n, shape[1], shape[2], shape[3]}, DType::u8);
  for (int64_t i = 0; i < n; ++i) {
    const float* const w = weights.data<float>() + i * each;
    const auto [low, high] = std::minmax_element(w, w + each);
    const float range = *high > *low ? *high - *low : 1;
    for (int64_t j = 0; j < each; ++j)
      out.data<uint8_t>()[i * each + j] = uint8_t(std::lround(255 * (w[j] - *low) / range));
  }
  s.filters = smaller(out, kLargestSide);
}

}  // namespace ringtape
