// How the operations of autograd/ops are written as nodes of ONNX.
#include <algorithm>
#include <array>

#include "autograd/ops.h"
#include "train/onnx/call.h"

namespace ringtape::onnx {
namespace {

using List = std::vector<int64_t>;
constexpr Order kFirst = Order::channels_first;

// An axis of images in an order.
int64_t axis_in(Order order, int64_t axis) {
  return order == kFirst ? std::find(std::begin(kChannelsFirst), std::end(kChannelsFirst), axis) - kChannelsFirst
                         : axis;
}

Attributes window_attributes(Call& c, const List& kernel) {
  const List& w = c.list("window");
  return {{"kernel_shape", kernel},
          {"strides", List{w[0], w[1]}},
          {"pads", List{w[2], w[3], w[2], w[3]}},
          {"dilations", List{w[4], w[5]}}};
}

void conv2d(Call& c) {
  const Shape& w = c.tensor(1).shape();
  Attributes attributes = window_attributes(c, {w[1], w[2]});
  attributes.push_back({"group", c.tensor(0).dim(3) / w[3]});
  std::vector<std::string> inputs{c.name(0, kFirst), c.name(1, kFirst)};
  if (c.has(2)) inputs.push_back(c.name(2));
  c.give(c.node("Conv", inputs, attributes), kFirst);
}

void max_pool2d(Call& c) {
  c.give(c.node("MaxPool", {c.name(0, kFirst)}, window_attributes(c, c.list("size"))), kFirst);
}

void avg_pool2d(Call& c) {
  Attributes attributes = window_attributes(c, c.list("size"));
  if (c.list("window")[4] != 1 || c.list("window")[5] != 1) c.refuse("it has dilations");
  attributes.back() = {"count_include_pad", int64_t{1}};  // in place of the dilations
  c.give(c.node("AveragePool", {c.name(0, kFirst)}, attributes), kFirst);
}

void pad2d(Call& c) {
  const List& p = c.list("pads");
  const std::string pads = c.constant(List{0, 0, p[0], p[1], 0, 0, p[2], p[3]});
  c.give(c.node("Pad", {c.name(0, kFirst), pads, c.constant(c.number("value"))}), kFirst);
}

void batch_norm(Call& c) {
  if (c.integer("training")) c.refuse("it normalises by the statistics of the batch");
  const int rank = c.tensor(0).rank();
  if (rank != 2 && rank != 4) c.refuse(concat("its input has ", rank, " axes; expected 2 or 4"));
  const Order order = rank == 4 ? kFirst : Order::ours;
  std::string y =
      c.node("BatchNormalization", {c.name(0, order), c.name(1), c.name(2), c.attribute_name(0), c.attribute_name(1)},
             {{"epsilon", c.number("eps")}});
  if (c.has(3)) y = c.node("Add", {y, c.name(3, order)});
  c.give(c.integer("relu") ? c.node("Relu", {y}) : y, order);
}

void layer_norm(Call& c) {
  if (!c.has(1)) c.refuse("it has no weights");
  std::vector<std::string> inputs{c.name(0), c.name(1)};
  if (c.has(2)) inputs.push_back(c.name(2));
  c.give(c.node("LayerNormalization", inputs, {{"axis", -int64_t(c.tensor(1).rank())}, {"epsilon", c.number("eps")}}));
}

void linear(Call& c) {
  std::vector<std::string> inputs{c.name(0), c.name(1)};
  if (c.has(2)) inputs.push_back(c.name(2));
  const std::string y = c.node("Gemm", inputs, {{"transB", int64_t{1}}});
  c.give(c.integer("relu") ? c.node("Relu", {y}) : y);
}

void matmul(Call& c) { c.give(c.node("MatMul", {c.name(0), c.name(1)})); }

// softmax(scale q k^T) v of q, v (N, H, T, D) and k (N, H, D, T).
std::string attended(Call& c, const std::string& q, const std::string& k, const std::string& v) {
  if (c.integer("causal")) c.refuse("it is causal");
  const std::string scores = c.node("Mul", {c.node("MatMul", {q, k}), c.constant(c.number("scale"))});
  return c.node("MatMul", {c.node("Softmax", {scores}, {{"axis", int64_t{-1}}}), v});
}

void attention(Call& c) {
  if (c.tensor(0).rank() != 4) c.refuse(concat("its operands have ", c.tensor(0).rank(), " axes; expected 4"));
  const std::string k = c.node("Transpose", {c.name(1)}, {{"perm", List{0, 1, 3, 2}}});
  c.give(attended(c, c.name(0), k, c.name(2)));
}

void self_attention(Call& c) {
  const List& sizes = c.sizes();
  const int64_t heads = c.integer("heads"), width = c.tensor(0).dim(2) / 3;
  if (sizes[1] < 0) c.refuse("the number of its tokens depends on the batch");
  const auto part = [&](int64_t i, const List& axes) {
    const std::string x = c.node(
        "Slice", {c.name(0), c.constant(List{i * width}), c.constant(List{(i + 1) * width}), c.constant(List{2})});
    const std::string split = c.node("Reshape", {x, c.constant(List{-1, sizes[1], heads, width / heads})});
    return c.node("Transpose", {split}, {{"perm", axes}});
  };
  const std::string y = attended(c, part(0, {0, 2, 1, 3}), part(1, {0, 2, 3, 1}), part(2, {0, 2, 1, 3}));
  c.give(c.node("Reshape", {c.node("Transpose", {y}, {{"perm", List{0, 2, 1, 3}}}), c.constant(sizes)}));
}

void permute(Call& c) {
  const List& axes = c.list("axes");
  if (std::equal(axes.begin(), axes.end(), std::begin(kChannelsFirst), std::end(kChannelsFirst)))
    return c.give(c.name(0, kFirst));
  if (std::equal(axes.begin(), axes.end(), std::begin(kChannelsLast), std::end(kChannelsLast)))
    return c.give(c.name(0), kFirst);
  c.give(c.node("Transpose", {c.name(0)}, {{"perm", axes}}));
}

// The result's sizes; one of them may depend on the batch.
void reshape(Call& c) {
  if (std::count(c.sizes().begin(), c.sizes().end(), -1) > 1) c.refuse("two of its sizes depend on the batch");
  c.give(c.node("Reshape", {c.name(0), c.constant(c.sizes())}));
}

// Axes that repeat once for each image have the size of the images' first.
void expand(Call& c) {
  const List& sizes = c.sizes();
  std::vector<std::string> parts;
  bool repeats = false;
  List known;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t own = int64_t(i) - int64_t(sizes.size()) + c.tensor(0).rank();
    const bool repeated = sizes[i] < 0 && (own < 0 || c.tensor(0).dim(int(own)) == 1);
    if (repeated && c.op().y.dim(int(i)) != kTraced) c.refuse("it repeats more than once for each image");
    repeats = repeats || repeated;
    known.push_back(sizes[i] < 0 ? 1 : sizes[i]);
    parts.push_back(repeated ? c.count() : c.constant(List{known.back()}));
  }
  c.give(c.node("Expand", {c.name(0), repeats ? c.node("Concat", parts, {{"axis", int64_t{0}}}) : c.constant(known)}));
}

void slice(Call& c) {
  const Order order = c.order_of(0);
  const auto list = [&](int64_t x) { return c.constant(List{x}); };
  c.give(c.node("Slice", {c.name(0, order), list(c.integer("begin")), list(c.integer("end")),
                          list(axis_in(order, c.integer("axis"))), list(c.integer("step"))}),
         order);
}

void same(Call& c) { c.give(c.name(0, c.order_of(0)), c.order_of(0)); }

void clamp(Call& c) {
  const Order order = c.order_of(0);
  c.give(c.node("Clip", {c.name(0, order), c.constant(c.number("low")), c.constant(c.number("high"))}), order);
}

// channels_first if that spares a Transpose and all inputs can have it: images of the same rank, or numbers.
Order common_order(const Call& c) {
  Order out = Order::ours;
  for (size_t i = 0; i < c.op().inputs.size(); ++i) {
    if (c.tensor(i).rank() != 4 && c.tensor(i).rank() != 0) return Order::ours;
    if (c.order_of(i) == kFirst) out = kFirst;
  }
  return out;
}
std::string operand(Call& c, size_t i, Order order) { return c.name(i, c.tensor(i).rank() == 4 ? order : Order::ours); }

void join(Call& c) {
  const Order order = common_order(c);
  std::vector<std::string> inputs;
  for (size_t i = 0; i < c.op().inputs.size(); ++i) inputs.push_back(operand(c, i, order));
  c.give(c.node("Concat", inputs, {{"axis", axis_in(order, c.integer("axis"))}}), order);
}

template <const char* type> void binary(Call& c) {
  const DType dtype = c.op().y.dtype();
  if (c.tensor(0).dtype() != dtype || c.tensor(1).dtype() != dtype) c.refuse("its operands have several dtypes");
  const Order order = common_order(c);
  c.give(c.node(type, {operand(c, 0, order), operand(c, 1, order)}), order);
}

template <const char* type> void unary(Call& c) { c.give(c.node(type, {c.name(0, c.order_of(0))}), c.order_of(0)); }

template <const char* type> void along_last_axis(Call& c) {
  c.give(c.node(type, {c.name(0)}, {{"axis", int64_t{-1}}}));
}

// Functions that ONNX composes of others.
template <std::string (*f)(Call& c, const std::string& x)> void composed(Call& c) {
  c.give(f(c, c.name(0, c.order_of(0))), c.order_of(0));
}
std::string square(Call& c, const std::string& x) { return c.node("Mul", {x, x}); }
std::string rsqrt(Call& c, const std::string& x) { return c.node("Reciprocal", {c.node("Sqrt", {x})}); }
std::string silu(Call& c, const std::string& x) { return c.node("Mul", {x, c.node("Sigmoid", {x})}); }
std::string mish(Call& c, const std::string& x) {
  return c.node("Mul", {x, c.node("Tanh", {c.node("Softplus", {x})})});
}
std::string gelu(Call& c, const std::string& x) {
  const std::string erf = c.node("Erf", {c.node("Mul", {x, c.constant(0.70710678118654752)})});
  return c.node("Mul", {c.node("Mul", {x, c.constant(0.5)}), c.node("Add", {erf, c.constant(1)})});
}
std::string expm1(Call& c, const std::string& x) { return c.node("Sub", {c.node("Exp", {x}), c.constant(1)}); }
std::string log1p(Call& c, const std::string& x) { return c.node("Log", {c.node("Add", {x, c.constant(1)})}); }
std::string log2(Call& c, const std::string& x) {
  return c.node("Div", {c.node("Log", {x}), c.constant(0.69314718055994531)});
}
std::string log_sigmoid(Call& c, const std::string& x) {
  return c.node("Neg", {c.node("Softplus", {c.node("Neg", {x})})});
}
std::string hardsigmoid(Call& c, const std::string& x) {
  return c.node("HardSigmoid", {x}, {{"alpha", 1.0 / 6}, {"beta", 0.5}});
}
std::string leaky_relu(Call& c, const std::string& x) {
  return c.node("LeakyRelu", {x}, {{"alpha", c.number("number")}});
}
std::string elu(Call& c, const std::string& x) { return c.node("Elu", {x}, {{"alpha", c.number("number")}}); }

// The mean of images over rows and columns, and what keeps all axes, needs no Transpose.
template <const char* type> void reduce(Call& c) {
  List axes = c.list("axes");
  const bool keepdim = c.integer("keepdim"), spatial = axes == List{1, 2};
  const Order order = keepdim || spatial ? c.order_of(0) : Order::ours;
  for (int64_t& axis : axes) axis = axis_in(order, axis);
  std::vector<std::string> inputs{c.name(0, order)};
  Attributes attributes{{"keepdims", int64_t(keepdim)}};
  if (std::string_view(type) == "ReduceSum") inputs.push_back(c.constant(axes));
  else attributes.push_back({"axes", axes});
  c.give(c.node(type, inputs, attributes), keepdim ? order : Order::ours);
}

// clang-format off
struct Row {
  std::string_view op;
  Writer writer;
};
#define RT_TYPE(name) constexpr char k##name[] = #name;
RT_TYPE(Add) RT_TYPE(Sub) RT_TYPE(Mul) RT_TYPE(Div) RT_TYPE(Max) RT_TYPE(Min) RT_TYPE(Pow)
RT_TYPE(Neg) RT_TYPE(Abs) RT_TYPE(Exp) RT_TYPE(Log) RT_TYPE(Sqrt) RT_TYPE(Relu) RT_TYPE(Sigmoid) RT_TYPE(Softplus)
RT_TYPE(Tanh) RT_TYPE(HardSwish) RT_TYPE(Reciprocal) RT_TYPE(Sin) RT_TYPE(Cos) RT_TYPE(Erf) RT_TYPE(Selu)
RT_TYPE(Floor) RT_TYPE(Ceil) RT_TYPE(Round) RT_TYPE(Sign) RT_TYPE(Softmax) RT_TYPE(LogSoftmax)
RT_TYPE(ReduceMean) RT_TYPE(ReduceSum) RT_TYPE(ReduceMax) RT_TYPE(ReduceMin) RT_TYPE(ReduceProd)
RT_TYPE(ReduceLogSumExp)
#undef RT_TYPE

constexpr Row kRows[] = {
    {"conv2d", conv2d}, {"max_pool2d", max_pool2d}, {"avg_pool2d", avg_pool2d}, {"pad2d", pad2d},
    {"batch_norm", batch_norm}, {"layer_norm", layer_norm}, {"linear", linear}, {"matmul", matmul},
    {"scaled_dot_product_attention", attention}, {"self_attention", self_attention},
    {"permute", permute}, {"reshape", reshape}, {"contiguous", same}, {"expand", expand}, {"slice", slice},
    {"concat", join}, {"clamp", clamp},
    {"add", binary<kAdd>}, {"sub", binary<kSub>}, {"mul", binary<kMul>}, {"div", binary<kDiv>},
    {"maximum", binary<kMax>}, {"minimum", binary<kMin>}, {"pow", binary<kPow>},
    {"neg", unary<kNeg>}, {"abs", unary<kAbs>}, {"exp", unary<kExp>}, {"log", unary<kLog>}, {"sqrt", unary<kSqrt>},
    {"relu", unary<kRelu>}, {"sigmoid", unary<kSigmoid>}, {"softplus", unary<kSoftplus>}, {"tanh", unary<kTanh>},
    {"hardswish", unary<kHardSwish>}, {"reciprocal", unary<kReciprocal>}, {"sin", unary<kSin>}, {"cos", unary<kCos>},
    {"erf", unary<kErf>}, {"selu", unary<kSelu>}, {"floor", unary<kFloor>}, {"ceil", unary<kCeil>},
    {"round", unary<kRound>}, {"sign", unary<kSign>},
    {"square", composed<square>}, {"rsqrt", composed<rsqrt>}, {"silu", composed<silu>}, {"mish", composed<mish>},
    {"gelu", composed<gelu>}, {"expm1", composed<expm1>}, {"log1p", composed<log1p>}, {"log2", composed<log2>},
    {"log_sigmoid", composed<log_sigmoid>}, {"hardsigmoid", composed<hardsigmoid>},
    {"leaky_relu", composed<leaky_relu>}, {"elu", composed<elu>},
    {"softmax", along_last_axis<kSoftmax>}, {"log_softmax", along_last_axis<kLogSoftmax>},
    {"mean", reduce<kReduceMean>}, {"sum", reduce<kReduceSum>}, {"max", reduce<kReduceMax>},
    {"min", reduce<kReduceMin>}, {"prod", reduce<kReduceProd>}, {"logsumexp", reduce<kReduceLogSumExp>},
};
// clang-format on

}  // namespace

Writer writer_of(std::string_view op) {
  for (const Row& row : kRows)
    if (row.op == op) return row.writer;
  return nullptr;
}

}  // namespace ringtape::onnx
