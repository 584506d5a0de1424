#include "nn/vit.h"

#include <algorithm>

namespace ringtape::nn {

static Grid grid_of(int64_t height, int64_t width, int64_t patch) {
  RT_CHECK_AS(UsageError, height > 0 && width > 0 && patch > 0 && height % patch == 0 && width % patch == 0,
              "VisionTransformer: images of ", height, "x", width, " are not whole patches of ", patch, "x", patch);
  return {height / patch, width / patch};
}

VisionTransformer::VisionTransformer(const Options& o)
    : patch_(o.patch), grid_(grid_of(o.image[0], o.image[1], o.patch)),
      cls_token_(leaf(randn({1, 1, o.width}, 0, 1e-6))),
      pos_embed_(o.sine_positions ? leaf(sine_positions(1, grid_, o.width))
                                  : small_normal({1, 1 + grid_[0] * grid_[1], o.width})),
      proj_(o.in, o.width, o.patch, {.stride = o.patch}), norm_({o.width}, kTransformerNorm) {
  blocks_.set_checkpointing(o.checkpointing);
  for (int64_t i = 0; i < o.depth; ++i)
    blocks_.add<TransformerBlock>(
        TransformerBlock::Options{.width = o.width,
                                  .heads = o.heads,
                                  .hidden = 4 * o.width,
                                  .drop_path = o.drop_path * double(i) / double(std::max<int64_t>(1, o.depth - 1))});
  if (o.classes > 0) head_ = std::make_unique<Linear>(small_normal({o.classes, o.width}), leaf(zeros({o.classes})));
}

Tensor VisionTransformer::tokens(const Tensor& x) {
  const Tensor patches = proj_(x);  // (N, rows, columns, width)
  const int64_t n = x.dim(0), width = pos_embed_.dim(2);
  const Tensor positions = resampled_positions(pos_embed_, 1, grid_, grid_of(x.dim(1), x.dim(2), patch_));
  return concat({expand(cls_token_, {n, 1, width}), reshape(patches, {n, -1, width})}, 1) + positions;
}

Tensor VisionTransformer::features(const Tensor& x) { return norm_(squeeze(slice(blocks_(tokens(x)), 1, 0, 1), 1)); }

void VisionTransformer::visit(Visitor& v) {
  v.parameter("cls_token", cls_token_);
  v.parameter("pos_embed", pos_embed_);
  v.child("patch_embed.proj", proj_);
  v.child("blocks", blocks_);
  v.child("norm", norm_);
  if (head_) v.child("head", *head_);
}

}  // namespace ringtape::nn
