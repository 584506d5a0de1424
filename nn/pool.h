#pragma once
#include "nn/module.h"

namespace ringtape::nn {

// Pooling over square windows of images (N, H, W, C); stride 0 stands for the window's size.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(int64_t size, int64_t stride = 0, int64_t pad = 0)
      : size_(size), window_(square_window(stride ? stride : size, pad)) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, size_, size_, window_); }
  std::string str() const override { return concat("MaxPool2d(", size_, ", stride ", window_.stride_h, ")"); }

 private:
  int64_t size_;
  Window window_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(int64_t size, int64_t stride = 0, int64_t pad = 0)
      : size_(size), window_(square_window(stride ? stride : size, pad)) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, size_, size_, window_); }
  std::string str() const override { return concat("AvgPool2d(", size_, ", stride ", window_.stride_h, ")"); }

 private:
  int64_t size_;
  Window window_;
};

// (N, H, W, C) -> (N, C): the mean of each channel over the whole image.
class GlobalAvgPool : public Module {
 public:
  Tensor forward(const Tensor& x) override { return mean(x, {1, 2}); }
  std::string str() const override { return "GlobalAvgPool"; }
};

}  // namespace ringtape::nn
