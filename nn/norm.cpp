#include "nn/norm.h"

#include "autograd/create.h"

namespace ringtape::nn {
namespace {

// A parameter of a 16-bit module in f32; undefined stays so.
Tensor wide_parameter(const Tensor& x) { return x.defined() && x.dtype() != DType::f64 ? cast(x, DType::f32) : x; }

std::string named(const char* module, const Shape& shape) {
  return shape.rank() == 1 ? concat(module, "(", shape[0], ")") : concat(module, shape);
}

void visit_if_there(Visitor& v, const char* name, Tensor& x) {
  if (x.defined()) v.parameter(name, x);
}

// f(x), whose trailing axes are `shape`. Without a weight that says so they become one.
template <class F>
Tensor over_axes(const char* module, const Tensor& x, const Shape& shape, bool weighted, const F& f) {
  const int lead = x.rank() - shape.rank();
  bool fits = shape.rank() > 0 && lead >= 0;
  for (int i = 0; fits && i < shape.rank(); ++i) fits = x.shape()[lead + i] == shape[i];
  RT_CHECK_AS(ShapeError, fits, module, ": expected x with the trailing axes ", shape, ", got ", x.shape());
  return weighted || shape.rank() == 1 ? f(x) : reshape(f(flatten(x, lead)), x.shape());
}

}  // namespace

LayerNorm::LayerNorm(const Shape& shape, Options options) : shape_(shape), eps_(options.eps) {
  if (options.affine) weight = leaf(ones(shape));
  if (options.affine && options.bias) bias = leaf(zeros(shape));
}
Tensor LayerNorm::forward(const Tensor& x) {
  return over_axes("LayerNorm", x, shape_, weight.defined(), [this](const Tensor& rows) {
    return layer_norm(rows, wide_parameter(weight), wide_parameter(bias), eps_);
  });
}
void LayerNorm::visit(Visitor& v) {
  visit_if_there(v, "weight", weight);
  visit_if_there(v, "bias", bias);
}
std::string LayerNorm::str() const { return named("LayerNorm", shape_); }

RMSNorm::RMSNorm(const Shape& shape, Options options) : shape_(shape), eps_(options.eps) {
  if (options.affine) weight = leaf(ones(shape));
}
Tensor RMSNorm::forward(const Tensor& x) {
  return over_axes("RMSNorm", x, shape_, weight.defined(),
                   [this](const Tensor& rows) { return rms_norm(rows, wide_parameter(weight), eps_); });
}
void RMSNorm::visit(Visitor& v) { visit_if_there(v, "weight", weight); }
std::string RMSNorm::str() const { return named("RMSNorm", shape_); }

GroupNorm::GroupNorm(int64_t groups, int64_t channels, Options options)
    : groups_(groups), channels_(channels), eps_(options.eps) {
  if (options.affine) weight = leaf(ones({channels})), bias = leaf(zeros({channels}));
}
Tensor GroupNorm::forward(const Tensor& x) {
  RT_CHECK_AS(ShapeError, x.defined() && x.rank() >= 2 && x.dim(-1) == channels_, "GroupNorm: expected x (N, ..., ",
              channels_, "), got ", x.defined() ? x.shape().str() : "none");
  return group_norm(x, groups_, wide_parameter(weight), wide_parameter(bias), eps_);
}
void GroupNorm::visit(Visitor& v) {
  visit_if_there(v, "weight", weight);
  visit_if_there(v, "bias", bias);
}

InstanceNorm2d::InstanceNorm2d(int64_t channels, Options options) : channels_(channels), eps_(options.eps) {
  if (options.affine) weight = leaf(ones({channels})), bias = leaf(zeros({channels}));
}
Tensor InstanceNorm2d::forward(const Tensor& x) {
  RT_CHECK_AS(ShapeError, x.rank() == 4 && x.dim(-1) == channels_, "InstanceNorm2d: expected images (N, H, W, ",
              channels_, "), got ", x.shape());
  return instance_norm(x, wide_parameter(weight), wide_parameter(bias), eps_);
}
void InstanceNorm2d::visit(Visitor& v) {
  visit_if_there(v, "weight", weight);
  visit_if_there(v, "bias", bias);
}

}  // namespace ringtape::nn
