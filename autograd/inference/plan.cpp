#include "autograd/inference/plan.h"

#include <algorithm>
#include <numeric>

namespace ringtape::inference {
namespace {

constexpr int64_t kAligned = 64;

// When a buffer is needed: from the step that makes it to the last that reads it.
struct Life {
  int64_t bytes = 0, first = -1, last = -1, begin = -1;
  bool meets(const Life& other) const { return first <= other.last && other.first <= last; }
};

// The lowest place in which it meets none of those that are placed already.
int64_t free_place(const Life& life, std::vector<Life> placed) {
  std::erase_if(placed, [&](const Life& other) { return !life.meets(other); });
  std::ranges::sort(placed, {}, &Life::begin);
  int64_t begin = 0;
  for (const Life& other : placed) {
    if (begin + life.bytes <= other.begin) break;
    begin = std::max(begin, other.begin + other.bytes);
  }
  return begin;
}

}  // namespace

Plan::Plan(const Graph& graph, const std::vector<Step>& steps, int64_t images) : images_(images) {
  lay_out(graph, steps);
  for (const Step& step : steps) {
    for (const auto& [values, places] : {std::pair{&step.in, &in_}, {&step.out, &out_}}) {
      std::vector<Place>& all = places->emplace_back();
      for (const Value& v : *values) all.push_back(place_of(graph, v));
    }
  }
  y_ = place_of(graph, graph.y);
}

// The largest first.
void Plan::lay_out(const Graph& graph, const std::vector<Step>& steps) {
  std::vector<Life> lives(graph.buffers.size());
  const auto use = [&](const Value& v, int64_t step) {
    if (!v.given() || v.buffer == kInput || graph.is_constant(v)) return;
    Life& life = lives[size_t(v.buffer)];
    if (life.first < 0) life.first = step;
    life.last = step;
    life.bytes = (graph.buffers[size_t(v.buffer)].bytes.at(images_) + kAligned - 1) / kAligned * kAligned;
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const Value& v : steps[i].in) use(v, int64_t(i));
    for (const Value& v : steps[i].out) use(v, int64_t(i));
  }
  use(graph.y, int64_t(steps.size()));
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return lives[i].bytes; });
  std::vector<Life> placed;
  begins_.assign(lives.size(), -1);
  for (const size_t i : order) {
    if (lives[i].first < 0) continue;
    lives[i].begin = begins_[i] = free_place(lives[i], placed);
    placed.push_back(lives[i]);
    bytes_ = std::max(bytes_, lives[i].begin + lives[i].bytes);
  }
}

Plan::Place Plan::place_of(const Graph& graph, const Value& v) const {
  if (!v.given()) return {{}, -1, 0};
  View view;
  if (graph.is_constant(v)) view = graph.constant(v);
  view.dtype = v.dtype, view.rank = int(v.dims.size());
  for (int i = 0; i < view.rank; ++i)
    view.dims[i] = v.dims[size_t(i)].at(images_), view.strides[i] = v.strides[size_t(i)].at(images_);
  return {view, graph.is_constant(v) ? -1 : v.buffer, v.offset.at(images_) * int64_t(size_of(v.dtype))};
}

View Plan::view_of(const Place& place, const void* x, void* memory) const {
  View out = place.view;
  if (place.buffer < 0) return out;
  const char* const base =
      place.buffer == kInput ? static_cast<const char*>(x) : static_cast<char*>(memory) + begins_[size_t(place.buffer)];
  out.data = const_cast<char*>(base) + place.at;
  return out;
}

View Plan::run(const std::vector<Step>& steps, const void* x, void* memory) const {
  std::vector<View> in, out;
  for (size_t i = 0; i < steps.size(); ++i) {
    in.clear(), out.clear();
    for (const Place& p : in_[i]) in.push_back(view_of(p, x, memory));
    for (const Place& p : out_[i]) out.push_back(view_of(p, x, memory));
    steps[i].run(in, out);
  }
  return view_of(y_, x, memory);
}

}  // namespace ringtape::inference
