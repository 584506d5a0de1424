#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/inference/graph.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/parallel.h"

namespace ringtape::inference {
namespace {

// The layers that take weights: inputs x, w, b and, of conv2d, a residual.
bool is_layer(const Call& call) { return call.name == "conv2d" || call.name == "linear"; }

// Weights as a layer had them before they were converted.
const Tensor& widest(const Graph& graph, const Value& v) {
  const Buffer& buffer = graph.buffers[size_t(v.buffer)];
  return buffer.wide.defined() ? buffer.wide : buffer.constant;
}

constexpr int64_t kScaled = 1 << 14;  // that a thread should have at least

Tensor in_double(const Tensor& x) { return cast(contiguous(x.detach()), DType::f64); }

// w (K, ...) with each row times its number of `by` (K), f64, rounded once.
Tensor scaled(const Tensor& w, const Tensor& by) {
  const Tensor from = contiguous(cast(w.detach(), DType::f32)), to(w.shape());
  const int64_t rows = by.size(), each = rows ? w.size() / rows : 0;
  parallel_for(rows, 1 + kScaled / (each + 1), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const double factor = by.data<double>()[k];
      const float* const x = from.data<float>() + k * each;
      float* const y = to.data<float>() + k * each;
      for (int64_t i = 0; i < each; ++i) y[i] = float(x[i] * factor);
    }
  });
  return to;
}

class Fuser {
 public:
  explicit Fuser(Graph& graph) : graph_(graph) {
    for (const Call& call : graph.calls)
      for (const Value& v : call.inputs)
        if (v.given()) ++uses_[v.buffer];
    ++uses_[graph.y.buffer];
  }

  void run() {
    for (Call& call : graph_.calls) {
      if (call.name == "batch_norm" && !call.is("training")) normalise(call);
      else if (call.name == "add") add(call);
      else if (call.name == "relu") rectify(call);
      made_[call.y.buffer] = &call;
    }
    std::erase_if(graph_.calls, [](const Call& call) { return call.name.empty(); });
  }

 private:
  // The layer whose result is v, if nothing else needs it, and nothing has been made part of it that comes behind what
  // follows; null: there is none.
  Call* layer_of(const Value& v) {
    const auto found = made_.find(v.buffer);
    if (found == made_.end() || uses_[v.buffer] != 1) return nullptr;
    Call* const layer = found->second;
    const bool open = is_layer(*layer) && layer->y == v && graph_.is_whole(v) && !layer->is("relu") &&
                      graph_.is_constant(layer->inputs[1]);
    return open ? layer : nullptr;
  }
  static bool has_residual(const Call& layer) { return layer.inputs.size() > 3 && layer.inputs[3].given(); }
  bool fits_as_residual(const Value& v, const Value& y) const {
    return v.given() && !graph_.is_constant(v) && graph_.is_whole(v) && graph_.is_whole(y) && v.dtype == y.dtype &&
           v.dims == y.dims;
  }

  // `call` becomes the layer, with its own result.
  void take(Call& call, Call& layer, const Value& residual, bool relu) {
    const Value y = call.y;
    call = layer;
    layer.name = {};
    call.y = y;
    if (residual.given()) call.inputs.resize(4), call.inputs[3] = residual;
    if (!relu) return;
    std::erase_if(call.attributes, [](const OpAttribute& a) { return std::string_view(a.name) == "relu"; });
    call.attributes.push_back({"relu", int64_t{1}});
  }

  // (w x + c - mean) scale + b, with scale = weight / sqrt(var + eps), is (scale w) x + (c - mean) scale + b.
  void normalise(Call& call) {
    Call* const layer = layer_of(call.inputs[0]);
    const Value residual = call.inputs[3];
    if (!layer || has_residual(*layer) || call.y.dims != layer->y.dims || call.y.dtype != layer->y.dtype) return;
    if (residual.given() && (layer->name == "linear" || !fits_as_residual(residual, call.y))) return;
    if (!graph_.is_constant(call.inputs[1]) || !graph_.is_constant(call.inputs[2])) return;
    const bool has_bias = layer->inputs[2].given();
    if (has_bias && !graph_.is_constant(layer->inputs[2])) return;
    const Tensor mean = in_double(call.get<Tensor>("mean")), var = in_double(call.get<Tensor>("var")),
                 weight = in_double(graph_.constant(call.inputs[1])), b = in_double(graph_.constant(call.inputs[2])),
                 c = has_bias ? in_double(widest(graph_, layer->inputs[2])) : zeros(mean.shape(), DType::f64);
    const Tensor scale = weight / sqrt(var + call.get<double>("eps"));
    const Value folded = weights(scaled(widest(graph_, layer->inputs[1]), scale), layer->inputs[1]),
                bias = weights(cast((c - mean) * scale + b, DType::f32), layer->inputs[1]);
    const bool relu = call.is("relu");
    take(call, *layer, residual, relu);
    call.inputs[1] = folded, call.inputs[2] = bias;
  }

  // A constant in place of weights of another dtype, with its numbers of f32.
  Value weights(const Tensor& wide, const Value& instead) {
    const Value out = graph_.add_constant(cast(wide, instead.dtype));
    graph_.buffers[size_t(out.buffer)].wide = wide;
    return out;
  }

  void add(Call& call) {
    for (const size_t side : {0, 1}) {
      Call* const layer = layer_of(call.inputs[side]);
      const Value other = call.inputs[1 - side];
      if (!layer || layer->name != "conv2d" || has_residual(*layer) || call.y.dtype != layer->y.dtype ||
          call.y.dims != layer->y.dims || !fits_as_residual(other, call.y))
        continue;
      return take(call, *layer, other, false);
    }
  }

  void rectify(Call& call) {
    Call* const layer = layer_of(call.inputs[0]);
    if (layer && call.y.dims == layer->y.dims && graph_.is_whole(call.y)) take(call, *layer, {}, true);
  }

  Graph& graph_;
  std::map<int, int> uses_;    // of buffers
  std::map<int, Call*> made_;  // by which call
};

void leave_out_unneeded(Graph& graph) {
  std::vector<bool> needed(graph.buffers.size());
  needed[size_t(graph.y.buffer)] = true;
  std::vector<Call> kept;
  for (auto call = graph.calls.rbegin(); call != graph.calls.rend(); ++call) {
    if (!needed[size_t(call->y.buffer)]) continue;
    for (const Value& v : call->inputs)
      if (v.given()) needed[size_t(v.buffer)] = true;
    kept.push_back(std::move(*call));
  }
  graph.calls.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

}  // namespace

void fuse(Graph& graph) {
  const NoGrad no_grad;
  Fuser(graph).run();
  leave_out_unneeded(graph);
}

}  // namespace ringtape::inference
