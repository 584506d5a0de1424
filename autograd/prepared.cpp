#include "autograd/prepared.h"

#include <map>
#include <mutex>

#include "autograd/inference/plan.h"
#include "core/check.h"
#include "kernels/copy.h"

namespace ringtape {

// Images that go through all steps together: so few that the next step finds the results of a step in the cache, and
// so many that a weight is read for several.
static constexpr int64_t kMemory = int64_t{8} << 20, kLeast = 4, kMost = 32;

struct Prepared::State {
  inference::Graph graph;
  std::vector<inference::Step> steps;
  Shape image;
  int64_t group = 1;

  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<const inference::Plan>> plans;  // by the number of images, up to `group`

  std::shared_ptr<const inference::Plan> plan(int64_t images) {
    const std::lock_guard lock(mutex);
    std::shared_ptr<const inference::Plan>& out = plans[images];
    if (!out) out = std::make_shared<const inference::Plan>(graph, steps, images);
    return out;
  }
};

// Constants that no step reads any more, such as weights that have been packed.
static void release_unused(inference::Graph& graph, const std::vector<inference::Step>& steps) {
  std::vector<bool> used(graph.buffers.size());
  for (const inference::Step& step : steps)
    for (const inference::Value& v : step.in)
      if (v.given()) used[size_t(v.buffer)] = true;
  for (size_t i = 0; i < used.size(); ++i) {
    graph.buffers[i].wide = {};
    if (!used[i]) graph.buffers[i].constant = {};
  }
}

Prepared::Prepared(std::unique_ptr<State> state) : state_(std::move(state)) {}
Prepared::~Prepared() = default;

std::unique_ptr<const Prepared> Prepared::of(const std::function<Tensor(const Tensor&)>& f, const Shape& image,
                                             DType precision) {
  std::optional<inference::Graph> graph = inference::trace(f, image, precision);
  if (!graph || !graph->is_whole(graph->y)) return nullptr;
  inference::fuse(*graph);
  auto state = std::make_unique<State>();
  for (const inference::Call& call : graph->calls) {
    std::optional<inference::Step> step = inference::step_of(*graph, call);
    if (!step) return nullptr;
    state->steps.push_back(std::move(*step));
  }
  state->graph = std::move(*graph), state->image = image;
  release_unused(state->graph, state->steps);
  const int64_t each = std::max<int64_t>(state->plan(1)->bytes(), 1);
  state->group = std::clamp<int64_t>(kMemory / each, kLeast, kMost);
  return std::unique_ptr<const Prepared>(new Prepared(std::move(state)));
}

Tensor Prepared::operator()(const Tensor& images) const {
  State& s = *state_;
  RT_CHECK_AS(ShapeError, images.rank() == 4 && images.shape().without(0) == s.image && images.contiguous(),
              "Prepared: expected contiguous images of ", s.image, ", got ", images.shape());
  const int64_t n = images.dim(0);
  int64_t memory = 1;
  for (const int64_t count : {std::min(n, s.group), n % s.group})
    if (count > 0) memory = std::max(memory, s.plan(count)->bytes());
  const Tensor arena({memory}, DType::u8);
  Shape shape{n};
  for (size_t i = 1; i < s.graph.y.dims.size(); ++i) shape.append(s.graph.y.dims[i].base);
  const Tensor y(shape, s.graph.y.dtype);
  const int64_t each = shape.without(0).size();
  for (int64_t at = 0; at < n; at += s.group) {
    const int64_t count = std::min(s.group, n - at);
    const View part = s.plan(count)->run(s.steps, images.data<float>() + at * s.image.size(), arena.data<uint8_t>());
    copy(y.window(shape.with(0, count), y.strides(), at * each), part);
  }
  return y;
}

}  // namespace ringtape
