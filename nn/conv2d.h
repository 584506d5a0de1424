#pragma once
#include "nn/init.h"
#include "nn/module.h"

namespace ringtape::nn {

// y = x * w + b for images x (N, H, W, in) -> (N, Ho, Wo, out); weight (out, kernel, kernel, in / groups), bias (out).
// Throws ShapeError for images with another number of channels, also if conv2d would infer other groups from it.
class Conv2d : public Module {
 public:
  struct Options {
    int64_t stride = 1, pad = 0, dilation = 1, groups = 1;
    bool bias = true;
    Init init = Init::uniform_fan_in;  // of the weight
  };
  Conv2d(int64_t in, int64_t out, int64_t kernel) : Conv2d(in, out, kernel, Options{}) {}
  Conv2d(int64_t in, int64_t out, int64_t kernel, const Options& options) : options_(options) {
    RT_CHECK_AS(UsageError, options.groups >= 1 && in % options.groups == 0 && out % options.groups == 0,
                "Conv2d: ", in, " and ", out, " channels cannot be divided into ", options.groups, " groups");
    const int64_t fan_in = kernel * kernel * (in / options.groups);
    const Shape shape{out, kernel, kernel, in / options.groups};
    weight = options.init == Init::uniform_fan_in   ? uniform_fan_in(shape, fan_in)
             : options.init == Init::normal_fan_out ? normal_fan_out(shape)
                                                    : dirac(shape);
    if (options.bias) bias = uniform_fan_in({out}, fan_in);
  }
  Tensor forward(const Tensor& x) override {
    const int64_t in = weight.shape()[3] * options_.groups;
    RT_CHECK_AS(ShapeError, x.rank() != 4 || x.dim(3) == in, "Conv2d: expected images (N, H, W, ", in, "), got ",
                x.shape(), "; made with ", in, " input channels and ", options_.groups,
                options_.groups == 1 ? " group" : " groups");
    return conv2d(x, weight, bias, square_window(options_.stride, options_.pad, options_.dilation));
  }
  void visit(Visitor& v) override {
    v.parameter("weight", weight);
    if (bias.defined()) v.parameter("bias", bias);
  }
  std::string str() const override {
    const Shape& w = weight.shape();
    std::string out = concat("Conv2d(", w[3] * options_.groups, " -> ", w[0], ", ", w[1], "x", w[2]);
    if (options_.stride != 1) out += concat(", stride ", options_.stride);
    if (options_.pad != 0) out += concat(", pad ", options_.pad);
    if (options_.dilation != 1) out += concat(", dilation ", options_.dilation);
    if (options_.groups != 1) out += concat(", ", options_.groups, " groups");
    return out + (bias.defined() ? ")" : ", no bias)");
  }

  Tensor weight, bias;

 private:
  Options options_;
};

// Of a convolution whose channels a BatchNorm shifts.
inline Conv2d::Options without_bias(int64_t stride, int64_t pad, Init init = Init::uniform_fan_in) {
  return {.stride = stride, .pad = pad, .bias = false, .init = init};
}

}  // namespace ringtape::nn
