#pragma once
#include <ringtape/nn/nn.h>

// A layer of the project's own, in a file with a name that ringtape has, too.
struct Affine : ringtape::nn::Module {
  ringtape::Tensor scale = ringtape::leaf(ringtape::full({1}, 2)), shift = ringtape::leaf(ringtape::full({1}, 1));

  ringtape::Tensor forward(const ringtape::Tensor& x) override { return x * scale + shift; }
  void visit(ringtape::nn::Visitor& v) override {
    v.parameter("scale", scale);
    v.parameter("shift", shift);
  }
  std::string str() const override { return "Affine"; }
};
