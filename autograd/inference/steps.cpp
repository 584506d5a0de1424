// How operations of autograd/ops run without a tape. An operation of another name makes the function that has it one
// that cannot be prepared.
#include "autograd/inference/steps.h"

#include <algorithm>
#include <memory>

#include "kernels/attention.h"
#include "kernels/batch_norm.h"
#include "kernels/binary.h"
#include "kernels/clamp.h"
#include "kernels/conv2d_prepared.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "kernels/layer_norm.h"
#include "kernels/pool.h"
#include "kernels/reduce.h"
#include "kernels/softmax.h"
#include "kernels/unary.h"

namespace ringtape::inference {
namespace {

using List = std::vector<int64_t>;
using Views = std::span<const View>;
using Run = Step::Run;

Window window_of(const Call& call) {
  const List& w = call.get<List>("window");
  return {w[0], w[1], w[2], w[3], w[4], w[5]};
}
Activation activation_of(const Call& call) { return call.is("relu") ? Activation::relu : Activation::none; }

// A value's sizes behind the first, which do not depend on the number of images; or nothing.
std::optional<Shape> each_of(const Value& v) {
  Shape out;
  if (v.dims.empty() || v.dims[0] != Size{0, 1}) return {};
  for (size_t i = 1; i < v.dims.size(); ++i) {
    if (v.dims[i].each != 0) return {};
    out.append(v.dims[i].base);
  }
  return out;
}

// The weights and the bias of a layer, if they are known and of f32, before a cast.
struct Weights {
  View w, b;
};
std::optional<Weights> weights_of(const Graph& graph, const Call& call) {
  const auto wide = [&](const Value& v) {
    const Buffer& buffer = graph.buffers[size_t(v.buffer)];
    return buffer.wide.defined() ? View(buffer.wide) : View(buffer.constant);
  };
  const Value &w = call.inputs[1], &b = call.inputs[2];
  if (!graph.is_constant(w) || (b.given() && !graph.is_constant(b))) return {};
  const Weights out{wide(w), b.given() ? wide(b) : View{}};
  const bool fits = call.y.dtype != DType::f64 && out.w.dtype == DType::f32 && out.w.contiguous() &&
                    (!b.given() || out.b.dtype == DType::f32);
  return fits ? std::optional(out) : std::nullopt;
}

Run conv2d(Graph& graph, const Call& call) {
  const std::optional<Shape> image = each_of(call.inputs[0]);
  const std::optional<Weights> weights = weights_of(graph, call);
  if (!weights || !image || !graph.is_whole(call.inputs[0]) || !graph.is_whole(call.y)) return {};
  const auto conv = std::make_shared<const PreparedConv>(
      prepare_conv2d(weights->w, weights->b, window_of(call), *image, call.y.dtype));
  return [conv, relu = call.is("relu")](Views in, Views out) {
    conv2d_prepared(out[0], in[0], *conv, in.size() > 3 ? in[3] : View{}, relu);
  };
}

View as_pixels(const View& rows) {  // (n, c) as n images of one pixel
  View out = rows;
  out.rank = 4;
  out.dims[3] = rows.dims[1], out.dims[1] = out.dims[2] = 1;
  out.strides[1] = out.strides[2] = out.strides[3] = 1;
  return out;
}

// A convolution of one pixel, whose bytes do not depend on the number of rows; linear_forward's do.
Run linear(Graph& graph, const Call& call) {
  const Value& x = call.inputs[0];
  const std::optional<Weights> weights = weights_of(graph, call);
  if (!weights || x.dims.size() != 2 || !graph.is_whole(x) || !graph.is_whole(call.y)) return {};
  const auto conv = std::make_shared<const PreparedConv>(
      prepare_conv2d(as_pixels(weights->w), weights->b, Window{}, {1, 1, x.dims[1].base}, x.dtype));
  return [conv, relu = call.is("relu")](Views in, Views out) {
    conv2d_prepared(as_pixels(out[0]), as_pixels(in[0]), *conv, View{}, relu);
  };
}

Run batch_norm(Graph&, const Call& call) {
  if (call.is("training")) return {};
  return [mean = call.get<Tensor>("mean"), var = call.get<Tensor>("var"), eps = call.get<double>("eps"),
          f = activation_of(call)](Views in, Views out) {
    batch_norm_forward(out[0], View{}, in[0], in[3], mean, var, in[1], in[2], eps, f);
  };
}

// (rows, columns) of what is contiguous.
View as_rows(const View& v, int64_t columns) {
  View out = v;
  out.rank = 2, out.dims[0] = v.size() / std::max<int64_t>(1, columns), out.dims[1] = columns;
  out.strides[0] = columns, out.strides[1] = 1;
  return out;
}

Run layer_norm(Graph& graph, const Call& call) {
  const Value& w = call.inputs[1].given() ? call.inputs[1] : call.inputs[2];
  if (!graph.is_whole(call.inputs[0]) || !graph.is_whole(call.y) || (w.given() && !graph.is_constant(w))) return {};
  const int64_t columns = w.given() ? graph.constant(w).size() : call.y.dims.back().base;
  return [columns, eps = call.get<double>("eps")](Views in, Views out) {
    const View y = as_rows(out[0], columns);
    View statistics = out[1];
    statistics.dtype = DType::f32, statistics.rank = 2;
    statistics.dims[0] = y.dims[0], statistics.dims[1] = 3, statistics.strides[0] = 3, statistics.strides[1] = 1;
    layer_norm_forward(y, statistics, as_rows(in[0], columns), in[1], in[2], eps, true);
  };
}

// One of three parts of (N, T, 3 H D), or (N, T, H D) itself, as heads (N, H, T, D).
View as_heads(const View& v, int64_t heads, int64_t part, int64_t parts) {
  View out = v;
  const int64_t size = v.dims[2] / (parts * heads);
  out.rank = 4;
  out.dims[1] = heads, out.dims[2] = v.dims[1], out.dims[3] = size;
  out.strides[1] = size, out.strides[2] = v.strides[1], out.strides[3] = 1;
  out.data = static_cast<char*>(v.data) + part * heads * size * int64_t(size_of(v.dtype));
  return out;
}

Run self_attention(Graph& graph, const Call& call) {
  if (!graph.is_whole(call.inputs[0]) || !graph.is_whole(call.y) || call.y.dtype == DType::f64) return {};
  return [heads = call.get<int64_t>("heads"), scale = call.get<double>("scale"), causal = call.is("causal")](
             Views in, Views out) {
    const auto part = [&](int64_t i) { return as_heads(in[0], heads, i, 3); };
    const View y = as_heads(out[0], heads, 0, 1);
    View lse = out[1];
    lse.dtype = DType::f32, lse.rank = 3;
    for (int i = 0; i < 3; ++i) lse.dims[i] = y.dims[i];
    lse.strides[0] = y.dims[1] * y.dims[2], lse.strides[1] = y.dims[2], lse.strides[2] = 1;
    attention_forward(y, lse, part(0), part(1), part(2), scale, causal);
  };
}

Run max_pool2d(Graph&, const Call& call) {
  return [window = window_of(call), size = call.get<List>("size")](Views in, Views out) {
    max_pool2d_forward(out[0], out[1], in[0], size[0], size[1], window);
  };
}

Run avg_pool2d(Graph&, const Call& call) {
  return [window = window_of(call), size = call.get<List>("size")](Views in, Views out) {
    avg_pool2d_forward(out[0], in[0], size[0], size[1], window);
  };
}

// y with the axes that the reduction takes away, as the kernel has them.
View with_axes(View y, const View& x, const List& axes) {
  y.rank = x.rank;
  int64_t step = 1;
  for (int i = x.rank; i-- > 0; step *= y.dims[i]) {
    y.dims[i] = std::ranges::count(axes, i) > 0 ? 1 : x.dims[i];
    y.strides[i] = step;
  }
  return y;
}

template <const auto& kernel> Run reduce(Graph& graph, const Call& call) {
  if (!is_float(call.y.dtype) || !graph.is_whole(call.y)) return {};
  return [axes = call.get<List>("axes")](Views in, Views out) { kernel(with_axes(out[0], in[0], axes), in[0]); };
}

// The elements in their order, as another shape or dtype.
Run copied(Graph& graph, const Call& call) {
  if (!graph.is_whole(call.y)) return {};
  return [](Views in, Views out) { copy(with_axes(out[0], in[0], {}), in[0]); };
}

Run concat(Graph&, const Call& call) {
  return [axis = int(call.get<int64_t>("axis"))](Views in, Views out) {
    View place = out[0];
    auto* to = static_cast<char*>(place.data);
    for (const View& part : in) {
      place.dims[axis] = part.dims[axis], place.data = to;
      copy(place, part);
      to += part.dims[axis] * place.strides[axis] * int64_t(size_of(place.dtype));
    }
  };
}

Run clamp(Graph&, const Call& call) {
  return [low = call.get<double>("low"), high = call.get<double>("high")](Views in, Views out) {
    clamp_forward(out[0], in[0], low, high);
  };
}

Run pad2d(Graph&, const Call& call) {
  return [pads = call.get<List>("pads"), value = call.get<double>("value")](Views in, Views out) {
    fill(out[0], value);
    View middle = out[0];
    middle.dims[1] = in[0].dims[1], middle.dims[2] = in[0].dims[2];
    const int64_t skipped = pads[0] * middle.strides[1] + pads[1] * middle.strides[2];
    middle.data = static_cast<char*>(middle.data) + skipped * int64_t(size_of(middle.dtype));
    copy(middle, in[0]);
  };
}

template <const auto& kernel> Run one_to_one(Graph&, const Call& call) {
  if (!is_float(call.y.dtype) || call.inputs[0].dtype != call.y.dtype) return {};
  return [](Views in, Views out) { kernel(out[0], in[0]); };
}

template <const auto& kernel> Run with_number(Graph&, const Call& call) {
  if (!is_float(call.y.dtype)) return {};
  return [p = call.get<double>("number")](Views in, Views out) { kernel(out[0], in[0], p); };
}

template <const auto& kernel> Run of_two(Graph&, const Call& call) {
  if (!is_float(call.y.dtype)) return {};
  return [](Views in, Views out) { kernel(out[0], in[0], in[1]); };
}

struct Row {
  std::string_view op;
  Run (*make)(Graph&, const Call&);
};
const Row kRows[] = {{"conv2d", conv2d},
                     {"linear", linear},
                     {"batch_norm", batch_norm},
                     {"layer_norm", layer_norm},
                     {"self_attention", self_attention},
                     {"max_pool2d", max_pool2d},
                     {"avg_pool2d", avg_pool2d},
                     {"sum", reduce<sum_forward>},
                     {"mean", reduce<mean_forward>},
                     {"max", reduce<max_forward>},
                     {"min", reduce<min_forward>},
                     {"cast", copied},
                     {"contiguous", copied},
                     {"reshape", copied},
                     {"concat", concat},
                     {"clamp", clamp},
                     {"pad2d", pad2d},
                     {"softmax", one_to_one<softmax_forward>},
                     {"log_softmax", one_to_one<log_softmax_forward>},
#define X(name, ...) {#name, one_to_one<name##_forward>},
                     RT_UNARY_OPS(X) RT_STEP_OPS(X)
#undef X
#define X(name, ...) {#name, with_number<name##_forward>},
                         RT_UNARY_NUMBER_OPS(X)
#undef X
#define X(name, ...) {#name, of_two<name##_forward>},
                             RT_BINARY_OPS(X)
#undef X
};

// Memory for what only a backward pass needs: `bytes` for each element of y.
Value memory_beside(Graph& graph, const Value& y, int64_t bytes) {
  const int64_t each = int64_t(size_of(y.dtype));
  const Size own = graph.buffers[size_t(y.buffer)].bytes;
  Value out = y;
  out.buffer = int(graph.buffers.size()), out.dtype = DType::i32;
  graph.buffers.push_back({.bytes = {own.base / each * bytes, own.each / each * bytes}});
  return out;
}

}  // namespace

std::optional<Step> step_of(Graph& graph, const Call& call) {
  const auto row = std::ranges::find(kRows, call.name, &Row::op);
  if (row == std::end(kRows)) return {};
  Step out{.in = call.inputs, .out = {call.y}, .run = row->make(graph, call)};
  if (!out.run) return {};
  if (call.name == "conv2d" || call.name == "linear") out.in[1] = out.in[2] = {};  // they have been packed
  // The places of the largest elements; a number for each row of a head; three for each row.
  if (call.name == "max_pool2d" || call.name == "self_attention") out.out.push_back(memory_beside(graph, call.y, 4));
  if (call.name == "layer_norm") out.out.push_back(memory_beside(graph, call.y, 12));
  return out;
}

}  // namespace ringtape::inference
