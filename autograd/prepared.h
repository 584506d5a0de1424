#pragma once
#include <functional>
#include <memory>

#include "core/tensor.h"

namespace ringtape {

// A function of images, such as a network in evaluation mode, prepared for many calls: without a tape, each
// normalisation part of the convolution or linear layer before it, as are sums and ReLUs behind it, weights converted
// and packed once, and all results in one piece of memory, which is planned. The weights must not change any more.
//
// The result is that of f to rounding: f32 to 1e-5 of the largest number (1e-4 where normalisations divide by small
// deviations). Its bytes for an image depend neither on the other images nor on the number of threads. Many threads may
// call it at once.
class Prepared {
 public:
  // f is called with a few images (N, H, W, C), f32 on cpu:0, of noise; `precision`: as of Autocast. Null if f cannot
  // be prepared (inference/graph.h): then there is f alone.
  static std::unique_ptr<const Prepared> of(const std::function<Tensor(const Tensor&)>& f, const Shape& image,
                                            DType precision = DType::f32);
  ~Prepared();

  Tensor operator()(const Tensor& images) const;  // f32 (N, H, W, C) of that size, contiguous, on cpu:0

 private:
  struct State;
  explicit Prepared(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ringtape
