#include "nn/cifar_net.h"

#include "nn/whitening.h"

namespace ringtape::nn {

static constexpr int64_t kPatch = 2;              // side of the whitened patches
static constexpr double kFeatureScale = 1.0 / 9;  // of the last layer's input

static BatchNorm::Options without_scale() { return {.momentum = 0.4, .eps = 1e-12, .scale = false}; }

CifarBlock::CifarBlock(int64_t in, int64_t out)
    : conv1_(in, out, 3, without_bias(1, 1, Init::dirac)), norm1_(out, without_scale()),
      conv2_(out, out, 3, without_bias(1, 1, Init::dirac)), norm2_(out, without_scale()) {}

Tensor CifarBlock::forward(const Tensor& x) {
  const Tensor h = gelu(norm1_(pool_(conv1_(x))));
  return gelu(norm2_(conv2_(h)));
}

void CifarBlock::visit(Visitor& v) {
  v.child("conv1", conv1_);
  v.child("pool", pool_);
  v.child("norm1", norm1_);
  v.child("conv2", conv2_);
  v.child("norm2", norm2_);
}

CifarNet::CifarNet(const Options& options)
    : options_(options), whiten_(options.in, 2 * kPatch * kPatch * options.in, kPatch),
      blocks_{CifarBlock(whiten_.weight.dim(0), options.width), CifarBlock(options.width, 4 * options.width),
              CifarBlock(4 * options.width, 4 * options.width)} {
  whiten_.weight = whiten_.weight.detach();
  if (options.classes > 0) head_ = std::make_unique<Linear>(4 * options.width, options.classes, false);
}

void CifarNet::whiten(const Tensor& images) { whiten_.weight = whitening_filters(images, kPatch); }

Tensor CifarNet::features(const Tensor& x) {
  constexpr int64_t kLeast = 9;
  RT_CHECK_AS(UsageError, x.rank() == 4 && x.dim(1) >= kLeast && x.dim(2) >= kLeast, "cifar_net: images of ", x.shape(),
              "; it takes ", kLeast, "x", kLeast, " and larger");
  // Once it is no longer trained, no gradient is computed for the first layer.
  const Tensor& bias = whiten_.bias;
  Tensor y = gelu(conv2d(x, whiten_.weight, epoch() < options_.bias_epochs ? bias : bias.detach()));
  for (CifarBlock& block : blocks_) y = block(y);
  return flatten(max_pool2d(y, y.dim(1), y.dim(2), square_window(1))) * kFeatureScale;
}

Tensor CifarNet::forward(const Tensor& x) { return head_ ? (*head_)(features(x)) : features(x); }

void CifarNet::visit(Visitor& v) {
  v.child("whiten", whiten_);
  for (size_t i = 0; i < blocks_.size(); ++i) v.child(concat("block", i + 1), blocks_[i]);
  if (head_) v.child("head", *head_);
}

}  // namespace ringtape::nn
