#include "nn/wide_resnet.h"

#include "autograd/create.h"

namespace ringtape::nn {

WideBlock::WideBlock(int64_t in, int64_t out, int64_t stride, double dropout)
    : bn1_(in), conv1_(in, out, 3, without_bias(stride, 1, Init::normal_fan_out)), bn2_(out), drop_(dropout),
      conv2_(out, out, 3, without_bias(1, 1, Init::normal_fan_out)) {
  if (in != out) shortcut_ = std::make_unique<Conv2d>(in, out, 1, without_bias(stride, 0, Init::normal_fan_out));
}

Tensor WideBlock::forward(const Tensor& x) {
  const Tensor h = bn1_(x, Activation::relu);
  const Tensor y = conv2_(drop_(bn2_(conv1_(h), Activation::relu)));
  return y + (shortcut_ ? (*shortcut_)(h) : x);
}

void WideBlock::visit(Visitor& v) {
  v.child("bn1", bn1_);
  v.child("conv1", conv1_);
  v.child("bn2", bn2_);
  v.child("drop", drop_);
  v.child("conv2", conv2_);
  if (shortcut_) v.child("convShortcut", *shortcut_);
}

WideResNet::WideResNet(const Options& o)
    : conv1_(o.in, 16, 3, without_bias(1, 1, Init::normal_fan_out)), bn1_(64 * o.widen) {
  RT_CHECK_AS(UsageError, o.depth >= 10 && o.depth % 6 == 4,
              "wide_resnet: expected a depth of 6 n + 4, such as 16 or 28, got ", o.depth);
  int64_t in = 16;
  for (size_t stage = 0; stage < blocks_.size(); ++stage)
    for (int64_t block = 0; block < (o.depth - 4) / 6; ++block) {
      const int64_t out = 16 * o.widen << stage;
      blocks_[stage].add<WideBlock>(in, out, stage > 0 && block == 0 ? 2 : 1, o.dropout);
      in = out;
    }
  if (o.classes == 0) return;
  fc_ = std::make_unique<Linear>(in, o.classes);
  fc_->bias = leaf(zeros({o.classes}));
}

Tensor WideResNet::features(const Tensor& x) {
  Tensor y = conv1_(x);
  for (Sequential& block : blocks_) y = block(y);
  return mean(bn1_(y, Activation::relu), {1, 2});
}

Tensor WideResNet::forward(const Tensor& x) { return fc_ ? (*fc_)(features(x)) : features(x); }

void WideResNet::visit(Visitor& v) {
  v.child("conv1", conv1_);
  for (size_t i = 0; i < blocks_.size(); ++i) v.child(concat("block", i + 1, ".layer"), blocks_[i]);
  v.child("bn1", bn1_);
  if (fc_) v.child("fc", *fc_);
}

}  // namespace ringtape::nn
