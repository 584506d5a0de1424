#pragma once
#include <string>
#include <vector>

#include "autograd/trace.h"
#include "train/onnx/graph.h"

namespace ringtape::onnx {

inline constexpr const char* kImages = "images";  // the graph's input
inline constexpr int64_t kTraced = 2;             // images of the trace whose operations are written

// In what order a value of the graph has its axes: in ours, or, of images (N, H, W, C) and weights (K, R, S, C), in
// that of ONNX, (N, C, H, W) and (K, C, R, S).
enum class Order : uint8_t { ours, channels_first };
inline constexpr int64_t kChannelsFirst[] = {0, 3, 1, 2}, kChannelsLast[] = {0, 2, 3, 1};

// A value of the traced network in the graph: its name in each order, empty while nobody has asked for it.
struct Value {
  std::string names[2];
  std::string& in(Order order) { return names[size_t(order)]; }
};

// Where the value is there in the other order only, a Transpose comes first.
const std::string& name_in(Graph& graph, Value& value, Order order);

// One operation of the traced network, for the function that writes it as nodes.
class Call {
 public:
  Call(Graph& graph, const TracedOp& op, std::vector<Value*> inputs, Value& result, std::vector<int64_t> sizes)
      : graph_(graph), op_(op), inputs_(std::move(inputs)), result_(result), sizes_(std::move(sizes)) {}

  const TracedOp& op() const { return op_; }
  bool has(size_t input) const { return op_.inputs[input].defined(); }
  const Tensor& tensor(size_t input) const { return op_.inputs[input]; }
  const std::vector<int64_t>& sizes() const { return sizes_; }  // of the result; -1: one that depends on the batch

  int64_t integer(const char* attribute) const { return get<int64_t>(attribute); }
  double number(const char* attribute) const { return get<double>(attribute); }
  const std::vector<int64_t>& list(const char* attribute) const { return get<std::vector<int64_t>>(attribute); }

  std::string name(size_t input, Order order = Order::ours) { return name_in(graph_, *inputs_[input], order); }
  // The order that needs no Transpose.
  Order order_of(size_t input) const;
  // An attribute that is a tensor follows the inputs, in the order of the attributes.
  std::string attribute_name(size_t number) { return name(op_.inputs.size() + number); }

  std::string node(const char* type, const std::vector<std::string>& inputs, const Attributes& attributes = {}) {
    return graph_.node(type, inputs, attributes);
  }
  std::string constant(double x);  // of the result's dtype
  std::string constant(const std::vector<int64_t>& list);
  std::string count();  // the number of images, a list of one
  // The result.
  void give(const std::string& name, Order order = Order::ours) { result_.in(order) = name; }

  // Throws UsageError: the operation cannot be written, because `why`.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  template <class T> const T& get(const char* attribute) const {
    const OpAttribute* const found = op_.find(attribute);
    if (!found || !std::holds_alternative<T>(found->value)) refuse(concat("its ", attribute, " is not known"));
    return std::get<T>(found->value);
  }

  Graph& graph_;
  const TracedOp& op_;
  std::vector<Value*> inputs_;  // null: not given
  Value& result_;
  std::vector<int64_t> sizes_;
};

// How an operation of this name is written; null: not at all.
using Writer = void (*)(Call&);
Writer writer_of(std::string_view op);

}  // namespace ringtape::onnx
