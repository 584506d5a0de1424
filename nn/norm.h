#pragma once
#include "nn/module.h"

// Normalisation by the statistics of a sample: the same in training and evaluation. Names, initial values and defaults
// are those of PyTorch's modules, but for RMSNorm's eps: PyTorch's is the distance of 1 from the next number of the
// dtype. 16-bit modules use their parameters in f32.
namespace ringtape::nn {

// Of x over its trailing axes `shape`, with a weight and a bias for each of their elements.
class LayerNorm : public Module {
 public:
  struct Options {
    double eps = 1e-5;
    bool affine = true;  // whether there are weight and bias; else they are 1 and 0
    bool bias = true;
  };
  explicit LayerNorm(const Shape& shape) : LayerNorm(shape, Options{}) {}
  LayerNorm(const Shape& shape, Options options);
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string str() const override;

  Tensor weight, bias;

 private:
  Shape shape_;
  double eps_;
};

// Of x over its trailing axes `shape` by the root mean square, without a centre and a bias.
class RMSNorm : public Module {
 public:
  struct Options {
    double eps = 1e-6;
    bool affine = true;  // whether there is a weight; else it is 1
  };
  explicit RMSNorm(const Shape& shape) : RMSNorm(shape, Options{}) {}
  RMSNorm(const Shape& shape, Options options);
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string str() const override;

  Tensor weight;

 private:
  Shape shape_;
  double eps_;
};

// Of x (N, ..., C), for images in NHWC and for rows, in groups of neighbouring channels.
class GroupNorm : public Module {
 public:
  struct Options {
    double eps = 1e-5;
    bool affine = true;  // whether there are weight and bias; else they are 1 and 0
  };
  GroupNorm(int64_t groups, int64_t channels) : GroupNorm(groups, channels, Options{}) {}
  GroupNorm(int64_t groups, int64_t channels, Options options);
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string str() const override { return concat("GroupNorm(", groups_, ", ", channels_, ")"); }

  Tensor weight, bias;

 private:
  int64_t groups_, channels_;
  double eps_;
};

// Of each channel of each image (N, H, W, C). As PyTorch's it has no weight and bias unless they are asked for. There
// are no running statistics.
class InstanceNorm2d : public Module {
 public:
  struct Options {
    double eps = 1e-5;
    bool affine = false;
  };
  explicit InstanceNorm2d(int64_t channels) : InstanceNorm2d(channels, Options{}) {}
  InstanceNorm2d(int64_t channels, Options options);
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string str() const override { return concat("InstanceNorm2d(", channels_, ")"); }

  Tensor weight, bias;

 private:
  int64_t channels_;
  double eps_;
};

}  // namespace ringtape::nn
