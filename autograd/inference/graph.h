#pragma once
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/trace.h"

// What a function of images computes, for any number n of them, from what it did with two and with three.
namespace ringtape::inference {

struct Size {
  int64_t base = 0, each = 0;  // base + each n
  int64_t at(int64_t n) const { return base + each * n; }
  bool operator==(const Size&) const = default;
};

// Memory that belongs to one tensor and its views.
struct Buffer {
  Tensor constant = {};  // its content, if that does not depend on the images;
  Tensor wide = {};      // and what it was converted from, or undefined
  Size bytes = {};       // of one that is computed
};
inline constexpr int kInput = 0;  // the buffer of the images

// How an operation sees a buffer; offset and strides in elements.
struct Value {
  int buffer = -1;  // -1: not given
  DType dtype = DType::f32;
  std::vector<Size> dims = {}, strides = {};
  Size offset = {};

  bool given() const { return buffer >= 0; }
  bool operator==(const Value&) const = default;
};

struct Call {
  std::string_view name;
  std::vector<Value> inputs;
  Value y;
  OpAttributes attributes;

  template <class T> const T& get(std::string_view attribute) const {
    for (const OpAttribute& a : attributes)
      if (attribute == a.name) return std::get<T>(a.value);
    throw Error(concat(name, " has no ", attribute));
  }
  bool is(std::string_view attribute) const {  // whether there is such a whole number, and it is not 0
    for (const OpAttribute& a : attributes)
      if (attribute == a.name) return std::get<int64_t>(a.value) != 0;
    return false;
  }
};

struct Graph {
  std::vector<Buffer> buffers;
  std::vector<Call> calls;  // in an order in which they can run
  Value y;

  const Tensor& constant(const Value& v) const { return buffers[size_t(v.buffer)].constant; }
  bool is_constant(const Value& v) const { return v.given() && constant(v).defined(); }
  Value add_constant(const Tensor& x);
  // Whether it is contiguous for every n, and begins its buffer.
  bool is_whole(const Value& v) const;
};

// The calls of f for images (n, H, W, C) of f32 in [-1, 1), in a given precision. Nothing if f does what a Graph cannot
// say: if its operations, or what they compute for one image, depend on the number of images or on their content; if it
// writes into tensors; or if a result comes from no recorded operation.
std::optional<Graph> trace(const std::function<Tensor(const Tensor&)>& f, const Shape& image, DType precision);

// The same result by fewer calls. The normalisation of evaluation that follows a convolution or a linear layer becomes
// part of its weights; a sum or a ReLU that follows becomes part of the call: conv2d's input 3, "relu". What nothing
// needs is left out.
void fuse(Graph& graph);

}  // namespace ringtape::inference
