#include <cmath>
#include <cstring>
#include <map>

#include "autograd/autocast.h"
#include "autograd/inference/graph.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/random.h"

namespace ringtape::inference {
namespace {

// Why a function cannot be prepared.
struct Unknown {};
void require(bool known) {
  if (!known) throw Unknown();
}

struct Traced {
  Tensor x, y;
  std::vector<TracedOp> ops;
};

// The first images are the same for any count. Draws no random numbers of the program.
Tensor images_of(int64_t count, const Shape& image) {
  const Tensor x({count, image[0], image[1], image[2]});
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = float(philox(0, 0, uint64_t(i)).x[0] >> 8) * 0x1p-23f - 1;
  return x;
}

Traced traced(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, DType precision) {
  const NoGrad no_grad;
  const Autocast autocast(precision);
  const OpTrace trace;
  const Tensor y = f(x);
  return {x, y, trace.ops()};
}

bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  if (View(a).data == View(b).data && a.strides() == b.strides()) return true;
  const Tensor x = contiguous(a), y = contiguous(b);
  return x.size() == 0 || std::memcmp(View(x).data, View(y).data, size_t(x.size()) * size_of(x.dtype())) == 0;
}

int64_t offset_of(const Tensor& x) {
  const auto bytes = static_cast<const char*>(View(x).data) - static_cast<const char*>(x.storage()->data());
  return bytes / int64_t(size_of(x.dtype()));
}

// Of two images and of three; of one alone, more is contiguous and less is repeated.
Size size_of_both(int64_t two, int64_t three) { return {two - 2 * (three - two), three - two}; }

// Whether both show the same elements, b some of them more often.
bool repeats(const Tensor& a, const Tensor& b) {
  bool out = View(a).data == View(b).data && a.rank() == b.rank() && a.dtype() == b.dtype();
  for (int i = 0; out && i < a.rank(); ++i)
    out = a.shape()[i] == b.shape()[i] ? a.shape()[i] == 1 || a.strides()[i] == b.strides()[i] : b.strides()[i] == 0;
  return out;
}

class Tracer {
 public:
  Tracer(const Traced& two, const Traced& three) {
    require(two.ops.size() == three.ops.size() && two.y.defined() && three.y.defined());
    add_buffer(two.x, three.x);
    for (size_t i = 0; i < two.ops.size(); ++i) add(two.ops[i], three.ops[i]);
    for (const auto& [storage, buffer] : two_) require(storage->version() == 0);
    graph_.y = value(two.y, three.y);
    require(!graph_.is_constant(graph_.y));
  }
  Graph graph() && { return std::move(graph_); }

 private:
  void add_buffer(const Tensor& a, const Tensor& b) {
    require(a.device() == Device{} && b.device() == Device{});
    const int number = int(graph_.buffers.size());
    graph_.buffers.push_back({.bytes = size_of_both(int64_t(a.storage()->bytes()), int64_t(b.storage()->bytes()))});
    two_[a.storage().get()] = number, three_[b.storage().get()] = number;
  }
  int computed(const Tensor& a, const Tensor& b) const {  // -1: neither is
    const auto x = two_.find(a.storage().get()), y = three_.find(b.storage().get());
    require((x == two_.end()) == (y == three_.end()));
    if (x == two_.end()) return -1;
    require(x->second == y->second);
    return x->second;
  }

  Value value(const Tensor& a, const Tensor& b) {
    require(a.defined() == b.defined());
    if (!a.defined()) return {};
    const int buffer = computed(a, b);
    if (buffer < 0) {
      require(a.device() == Device{} && (same_elements(a, b) || repeats(a, b)));
      Value out = graph_.add_constant(b);
      for (int i = 0; i < a.rank(); ++i) out.dims[size_t(i)] = size_of_both(a.shape()[i], b.shape()[i]);
      if (const auto wide = wide_.find(a.storage().get()); wide != wide_.end())
        graph_.buffers[size_t(out.buffer)].wide = wide->second;
      return out;
    }
    require(a.rank() == b.rank() && a.dtype() == b.dtype());
    Value out{.buffer = buffer, .dtype = a.dtype(), .offset = size_of_both(offset_of(a), offset_of(b))};
    for (int i = 0; i < a.rank(); ++i) {
      out.dims.push_back(size_of_both(a.shape()[i], b.shape()[i]));
      out.strides.push_back(size_of_both(a.strides()[i], b.strides()[i]));
    }
    return out;
  }

  // Views of what is there already are no calls, nor is what has no input that depends on the images.
  void add(const TracedOp& a, const TracedOp& b) {
    require(std::strcmp(a.name, b.name) == 0 && a.inputs.size() == b.inputs.size());
    require(a.attributes.size() == b.attributes.size());
    if (computed(a.y, b.y) >= 0) return;
    bool constant = true;
    for (size_t i = 0; i < a.inputs.size(); ++i)
      constant = constant && (!a.inputs[i].defined() || computed(a.inputs[i], b.inputs[i]) < 0);
    if (constant && std::strcmp(a.name, "cast") == 0) wide_[a.y.storage().get()] = a.inputs[0];
    if (constant) return;
    Call call{a.name, {}, {}, a.attributes};
    for (size_t i = 0; i < a.inputs.size(); ++i) call.inputs.push_back(value(a.inputs[i], b.inputs[i]));
    for (size_t i = 0; i < a.attributes.size(); ++i) require(same(a.attributes[i], b.attributes[i]));
    add_buffer(a.y, b.y);
    call.y = value(a.y, b.y);
    graph_.calls.push_back(std::move(call));
  }

  bool same(const OpAttribute& a, const OpAttribute& b) const {
    if (a.value.index() != b.value.index()) return false;
    if (const auto* x = std::get_if<Tensor>(&a.value)) {
      const Tensor& y = std::get<Tensor>(b.value);
      return computed(*x, y) < 0 && same_elements(*x, y);
    }
    return std::visit(
        [&]<class T>(const T& x) {
          if constexpr (std::is_same_v<T, Tensor>) return true;
          else return x == std::get<T>(b.value);
        },
        a.value);
  }

  Graph graph_;
  std::map<const Storage*, int> two_, three_;  // the buffers that depend on the images
  std::map<const Storage*, Tensor> wide_;      // what constants were converted from
};

}  // namespace

Value Graph::add_constant(const Tensor& x) {
  Value out{.buffer = int(buffers.size()), .dtype = x.dtype()};
  for (int i = 0; i < x.rank(); ++i) out.dims.push_back({x.shape()[i], 0}), out.strides.push_back({x.strides()[i], 0});
  buffers.push_back({.constant = x.detach()});
  return out;
}

bool Graph::is_whole(const Value& v) const {
  const auto contiguous_at = [&](int64_t n) {
    int64_t step = 1;
    for (size_t i = v.dims.size(); i-- > 0; step *= v.dims[i].at(n))
      if (v.dims[i].at(n) != 1 && v.strides[i].at(n) != step) return false;
    return true;
  };
  return v.given() && v.offset == Size{} && contiguous_at(2) && contiguous_at(3);
}

// Each image by itself: the first of three have the results of two.
static bool of_each_image(const Tensor& two, const Tensor& three) {
  if (two.rank() == 0 || two.dim(0) != 2 || three.dim(0) != 3 || !is_float(two.dtype())) return false;
  const NoGrad no_grad;
  const Tensor a = cast(contiguous(two), DType::f64), b = cast(contiguous(three), DType::f64);
  double largest = 0, apart = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    if (!std::isfinite(x) || !std::isfinite(y)) return false;
    largest = std::max(largest, std::abs(x)), apart = std::max(apart, std::abs(x - y));
  }
  return apart <= (two.dtype() == DType::f32 ? 1e-4 : 1e-1) * largest;
}

std::optional<Graph> trace(const std::function<Tensor(const Tensor&)>& f, const Shape& image, DType precision) {
  const Traced two = traced(f, images_of(2, image), precision), three = traced(f, images_of(3, image), precision);
  if (!two.y.defined() || two.y.device() != Device{} || !of_each_image(two.y, three.y)) return {};
  try {
    return Tracer(two, three).graph();
  } catch (const Unknown&) {
    return {};
  }
}

}  // namespace ringtape::inference
