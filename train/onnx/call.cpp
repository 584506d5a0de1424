#include "train/onnx/call.h"

#include "autograd/create.h"
#include "core/check.h"
#include "train/io/json.h"

namespace ringtape::onnx {

const std::string& name_in(Graph& graph, Value& value, Order order) {
  std::string& wanted = value.in(order);
  if (!wanted.empty()) return wanted;
  const bool first = order == Order::channels_first;
  const std::string& have = value.in(first ? Order::ours : Order::channels_first);
  const auto& axes = first ? kChannelsFirst : kChannelsLast;
  return wanted = graph.node("Transpose", {have}, {{"perm", std::vector<int64_t>(std::begin(axes), std::end(axes))}});
}

Order Call::order_of(size_t input) const {
  return inputs_[input]->in(Order::channels_first).empty() ? Order::ours : Order::channels_first;
}

std::string Call::constant(double x) {
  const DType dtype = op_.y.dtype();
  return graph_.initializer(concat(dtype, "_", shortest(x)), full({}, x, dtype));
}

std::string Call::constant(const std::vector<int64_t>& list) {
  std::string name = "list";
  for (const int64_t x : list) name += concat("_", x);
  return graph_.initializer(name, from_host(list, {int64_t(list.size())}));
}

std::string Call::count() {
  return node("Slice", {node("Shape", {kImages}), constant(std::vector<int64_t>{0}), constant(std::vector<int64_t>{1}),
                        constant(std::vector<int64_t>{0})});
}

void Call::refuse(const std::string& why) const {
  throw UsageError(concat("ONNX: the operation ", op_.name, " cannot be written: ", why));
}

}  // namespace ringtape::onnx
