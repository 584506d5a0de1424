#include "train/onnx/export.h"

#include <cstring>
#include <tuple>

#include "autograd/create.h"
#include "core/check.h"
#include "train/onnx/call.h"
#include "train/weights/weights.h"

namespace ringtape::onnx {
namespace {

// What f does with a few images.
struct Run {
  Tensor x, y;
  std::vector<TracedOp> ops;
};
Run run(const std::function<Tensor(const Tensor&)>& f, const Shape& image, int64_t count, Device device) {
  const NoGrad no_grad;
  const Tensor x = rand({count, image[0], image[1], image[2]}, -1, 1, DType::f32, device);
  const OpTrace trace;
  const Tensor y = f(x);
  return {x, y, trace.ops()};
}

// Where a tensor's elements are: two tensors of one place are one value.
using Place = std::tuple<const void*, DType, std::vector<int64_t>, std::vector<int64_t>>;
Place place_of(const Tensor& x) {
  const Shape &shape = x.shape(), &strides = x.strides();
  return {View(x).data, x.dtype(), {shape.begin(), shape.end()}, {strides.begin(), strides.end()}};
}

bool same_value(const OpAttribute& a, const OpAttribute& b) {
  return a.value.index() == b.value.index() && std::visit(
                                                   [&]<class T>(const T& x) {
                                                     if constexpr (std::is_same_v<T, Tensor>) return true;
                                                     else return x == std::get<T>(b.value);
                                                   },
                                                   a.value);
}

bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor x = contiguous(a).copy_to(Device{}), y = contiguous(b).copy_to(Device{});
  return x.size() == 0 || std::memcmp(View(x).data, View(y).data, size_t(x.size()) * size_of(x.dtype())) == 0;
}

class Exporter {
 public:
  Exporter(nn::Module& network, const Run& two, const Run& three) : two_(two), three_(three) {
    const auto add = [&](const nn::Named& t) { weights_[place_of(*t.tensor)] = t.name; };
    for (const nn::Named& p : nn::all_parameters(network)) add(p);
    for (const nn::Named& b : nn::named_buffers(network)) add(b);
    values_[place_of(two.x)].in(Order::channels_first) = kImages;
  }

  std::string model(const Shape& image, const std::string& output, const std::map<std::string, std::string>& metadata) {
    const std::vector<TracedOp>&a = two_.ops, &b = three_.ops;
    bool same = a.size() == b.size();
    for (size_t i = 0; same && i < a.size(); ++i) same = std::strcmp(a[i].name, b[i].name) == 0;
    RT_CHECK_AS(UsageError, same, "ONNX: the network's operations depend on the number or the content of the images");
    for (size_t i = 0; i < a.size(); ++i) write(a[i], b[i]);
    const auto found = values_.find(place_of(two_.y));
    RT_CHECK_AS(UsageError, found != values_.end(), "ONNX: the network's result comes from no known operation");
    const std::string y = name_in(graph_, found->second, Order::ours);
    return graph_.model({kImages, {-1, image[2], image[0], image[1]}}, y, {output, sizes(two_.y, three_.y)}, metadata);
  }

 private:
  // -1: differs
  static std::vector<int64_t> sizes(const Tensor& a, const Tensor& b) {
    std::vector<int64_t> out;
    for (int i = 0; i < a.rank(); ++i) out.push_back(b.rank() == a.rank() && a.dim(i) == b.dim(i) ? a.dim(i) : -1);
    return out;
  }

  void write(const TracedOp& a, const TracedOp& b) {
    const Writer writer = writer_of(a.name);
    RT_CHECK_AS(UsageError, writer, "ONNX: the operation ", a.name, " cannot be written; export .safetensors");
    std::vector<Value*> inputs;
    for (size_t i = 0; i < a.inputs.size(); ++i) inputs.push_back(value_of(a, a.inputs[i], b.inputs[i]));
    for (size_t i = 0; i < a.attributes.size(); ++i) {
      const OpAttribute &x = a.attributes[i], &y = b.attributes[i];
      RT_CHECK_AS(UsageError, same_value(x, y), "ONNX: the operation ", a.name, " cannot be written: its ", x.name,
                  " depends on the images");
      if (const Tensor* t = std::get_if<Tensor>(&x.value)) inputs.push_back(value_of(a, *t, std::get<Tensor>(y.value)));
    }
    Value result;
    Call call(graph_, a, inputs, result, sizes(a.y, b.y));
    writer(call);
    values_[place_of(a.y)] = result;
  }

  // Of an operation's input: a value that is known, a weight, or a constant. Null: it is not given.
  Value* value_of(const TracedOp& op, const Tensor& x, const Tensor& other) {
    if (!x.defined()) return nullptr;
    const Place place = place_of(x);
    if (const auto found = values_.find(place); found != values_.end()) return &found->second;
    const auto weight = weights_.find(place);
    RT_CHECK_AS(UsageError, weight != weights_.end() || same_elements(x, other), "ONNX: the operation ", op.name,
                " cannot be written: an input depends on the images, but comes from no operation that is recorded");
    const std::string name = weight != weights_.end() ? weight->second : concat("constant_", constants_++);
    Value& out = values_[place];
    out.in(x.rank() == 4 ? Order::channels_first : Order::ours) = graph_.initializer(name, in_file_order(x));
    return &out;
  }

  const Run &two_, &three_;
  Graph graph_;
  std::map<Place, std::string> weights_;
  std::map<Place, Value> values_;
  int constants_ = 0;
};

}  // namespace

std::string model_of(nn::Module& network, const std::function<Tensor(const Tensor& x)>& f, const Shape& image,
                     const std::string& output, const std::map<std::string, std::string>& metadata) {
  const std::vector<nn::Named> parameters = nn::all_parameters(network);
  const Device device = parameters.empty() ? Device{} : parameters[0].tensor->device();
  const Run two = run(f, image, kTraced, device), three = run(f, image, kTraced + 1, device);
  return Exporter(network, two, three).model(image, output, metadata);
}

}  // namespace ringtape::onnx
