#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autograd/trace.h"
#include "core/tensor.h"

namespace ringtape::onnx {

// Attributes of a node: whole numbers, numbers and lists of whole numbers.
using Attributes = OpAttributes;

// A graph of ONNX and its model file: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3. Values have names; a
// value is made by one node, or is the input or an initializer.
class Graph {
 public:
  // A constant with these elements, in any order in memory. The same name twice: it is there already.
  std::string initializer(const std::string& name, const Tensor& x);
  // A node of one result, whose name this returns. An empty input: not given.
  std::string node(const std::string& type, std::vector<std::string> inputs, const Attributes& attributes = {});

  struct Port {
    std::string name;
    std::vector<int64_t> dims;  // -1: a size that the file leaves open; as the first it is called "N"
  };
  // The model in bytes: its only input is f32, so is its output, the value `output` under the port's name. What this
  // value does not need is left out.
  std::string model(const Port& input, const std::string& output, const Port& port,
                    const std::map<std::string, std::string>& metadata) const;

 private:
  struct Node {
    std::string type, output;
    std::vector<std::string> inputs;
    Attributes attributes;
  };
  std::vector<Node> nodes_;
  std::map<std::string, Tensor> initializers_;
};

}  // namespace ringtape::onnx
