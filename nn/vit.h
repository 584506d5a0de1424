#pragma once
#include "nn/classifier.h"
#include "nn/conv2d.h"
#include "nn/positions.h"
#include "nn/sequential.h"
#include "nn/transformer.h"

namespace ringtape::nn {

// The vision transformer of Dosovitskiy et al., "An image is worth 16x16 words", 2021: (N, H, W, in) -> (N, classes).
// The features are the class token behind the last normalisation. Parameters have the names, layouts and first values
// of timm's VisionTransformer. Images of another size than `image` have their positions resampled in each call.
class VisionTransformer : public Module, public Classifier {
 public:
  struct Options {
    std::array<int64_t, 2> image = {224, 224};  // H and W; each a multiple of `patch`, as those of all images
    int64_t patch = 16;
    int64_t in = 3;
    int64_t classes = 1000;  // 0: no last layer; the output is the features
    int64_t width = 192, depth = 12, heads = 3;
    bool sine_positions = false;  // positions begin as sine_positions(); else as small_normal()
    double drop_path = 0;         // of the last block; grows linearly from 0 in the first
    bool checkpointing = false;   // of each block
  };
  explicit VisionTransformer(const Options& options);
  Tensor forward(const Tensor& x) override { return head_ ? (*head_)(features(x)) : features(x); }  // logits
  Tensor features(const Tensor& x) override;                                                        // (N, width)
  Tensor tokens(const Tensor& x);                                          // (N, 1 + rows columns, width), positioned
  Tensor encoded(const Tensor& tokens) { return norm_(blocks_(tokens)); }  // of any of them: (N, T, width)
  std::string last_layer() const override { return "head"; }
  void visit(Visitor& v) override;
  std::string str() const override { return "VisionTransformer"; }

  int64_t patch() const { return patch_; }
  Grid grid() const { return grid_; }
  int64_t channels() const { return proj_.weight.shape()[3]; }

 private:
  int64_t patch_;
  Grid grid_;
  Tensor cls_token_, pos_embed_;
  Conv2d proj_;
  Sequential blocks_;
  LayerNorm norm_;
  std::unique_ptr<Linear> head_;
};

}  // namespace ringtape::nn
