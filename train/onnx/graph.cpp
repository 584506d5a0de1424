#include "train/onnx/graph.h"

#include <cstring>
#include <set>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/check.h"
#include "train/io/protobuf.h"

namespace ringtape::onnx {
namespace {

using protobuf::field;

constexpr int64_t kIrVersion = 8, kOpset = 17;  // of ONNX 1.12, from 2022

// Numbers in onnx.proto3, under TensorProto.DataType and AttributeProto.AttributeType.
int64_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return 1;
    case DType::u8: return 2;
    case DType::i32: return 6;
    case DType::i64: return 7;
    case DType::b8: return 9;
    case DType::f16: return 10;
    case DType::f64: return 11;
    case DType::bf16: return 16;
  }
  throw DTypeError("ONNX: an unknown dtype");
}
constexpr int64_t kFloat = 1, kInt = 2, kInts = 7;

std::string attribute_proto(const OpAttribute& a) {
  const std::string name = field(1, std::string(a.name));
  if (const auto* x = std::get_if<double>(&a.value)) return name + field(2, float(*x)) + field(20, kFloat);
  if (const auto* x = std::get_if<int64_t>(&a.value)) return name + field(3, *x) + field(20, kInt);
  std::string list;
  for (const int64_t x : std::get<std::vector<int64_t>>(a.value)) list += field(8, x);
  return name + list + field(20, kInts);
}

std::string tensor_proto(const std::string& name, const Tensor& x) {
  const Tensor host = contiguous(x).copy_to(Device{});
  std::string out;
  for (const int64_t size : host.shape()) out += field(1, size);
  std::string bytes(size_t(host.size()) * size_of(host.dtype()), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), View(host).data, bytes.size());
  return out + field(2, data_type(host.dtype())) + field(8, name) + field(9, bytes);
}

std::string port_proto(const Graph::Port& port) {
  std::string shape;
  for (size_t i = 0; i < port.dims.size(); ++i) {
    const int64_t size = port.dims[i];
    shape += field(1, size >= 0 ? field(1, size) : i == 0 ? field(2, std::string("N")) : std::string());
  }
  const std::string type = field(1, field(1, data_type(DType::f32)) + field(2, shape));
  return field(1, port.name) + field(2, type);
}

}  // namespace

std::string Graph::initializer(const std::string& name, const Tensor& x) {
  initializers_.emplace(name, x.detach());
  return name;
}

std::string Graph::node(const std::string& type, std::vector<std::string> inputs, const Attributes& attributes) {
  nodes_.push_back({type, concat(type, "_", nodes_.size()), std::move(inputs), attributes});
  return nodes_.back().output;
}

std::string Graph::model(const Port& input, const std::string& output, const Port& port,
                         const std::map<std::string, std::string>& metadata) const {
  std::set<std::string> needed{output};
  std::vector<const Node*> used;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (!needed.contains(node->output)) continue;
    used.push_back(&*node);
    needed.insert(node->inputs.begin(), node->inputs.end());
  }
  RT_CHECK_AS(UsageError, !used.empty(), "ONNX: the network's result is its input or a constant");
  const NoGrad no_grad;
  const auto name_of = [&](const std::string& value) { return value == output ? port.name : value; };
  std::string graph;
  for (auto node = used.rbegin(); node != used.rend(); ++node) {
    std::string text;
    for (const std::string& value : (*node)->inputs) text += field(1, name_of(value));
    text += field(2, name_of((*node)->output)) + field(3, (*node)->output) + field(4, (*node)->type);
    for (const OpAttribute& a : (*node)->attributes) text += field(5, attribute_proto(a));
    graph += field(1, text);
  }
  graph += field(2, std::string("ringtape"));
  for (const auto& [name, x] : initializers_)
    if (needed.contains(name)) graph += field(5, tensor_proto(name, x));
  graph += field(11, port_proto(input)) + field(12, port_proto(port));
  std::string out = field(1, kIrVersion) + field(2, std::string("ringtape")) + field(7, graph);
  out += field(8, field(2, kOpset));
  for (const auto& [key, value] : metadata) out += field(14, field(1, key) + field(2, value));
  return out;
}

}  // namespace ringtape::onnx
