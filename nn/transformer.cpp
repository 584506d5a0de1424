#include "nn/transformer.h"

namespace ringtape::nn {

SelfAttention::SelfAttention(int64_t width, int64_t heads)
    : heads_(heads), qkv_(Linear::small(width, 3 * width)), proj_(Linear::small(width, width)) {
  RT_CHECK_AS(UsageError, heads > 0 && width % heads == 0, "SelfAttention: a width of ", width,
              " cannot be divided among ", heads, " heads");
}

void SelfAttention::visit(Visitor& v) {
  v.child("qkv", qkv_);
  v.child("proj", proj_);
}

Mlp::Mlp(int64_t width, int64_t hidden) : fc1_(Linear::small(width, hidden)), fc2_(Linear::small(hidden, width)) {}

void Mlp::visit(Visitor& v) {
  v.child("fc1", fc1_);
  v.child("fc2", fc2_);
}

TransformerBlock::TransformerBlock(const Options& o)
    : norm1_({o.width}, kTransformerNorm), attn_(o.width, o.heads), drop1_(o.drop_path),
      norm2_({o.width}, kTransformerNorm), mlp_(o.width, o.hidden), drop2_(o.drop_path) {}

Tensor TransformerBlock::forward(const Tensor& x) {
  const Tensor y = x + drop1_(attn_(norm1_(x)));
  return y + drop2_(mlp_(norm2_(y)));
}

void TransformerBlock::visit(Visitor& v) {
  v.child("norm1", norm1_);
  v.child("attn", attn_);
  v.child("drop_path1", drop1_);
  v.child("norm2", norm2_);
  v.child("mlp", mlp_);
  v.child("drop_path2", drop2_);
}

}  // namespace ringtape::nn
