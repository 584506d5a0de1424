#pragma once
#include "nn/drop_path.h"
#include "nn/linear.h"
#include "nn/norm.h"

// The parts of a transformer's encoder with normalisation in front of each branch. Parameters have timm's names.
namespace ringtape::nn {

// Every token of a sequence looks at all of it: x (N, T, width) -> (N, T, width), with `heads` heads side by side.
// Vaswani et al., "Attention is all you need", 2017.
class SelfAttention : public Module {
 public:
  SelfAttention(int64_t width, int64_t heads);
  Tensor forward(const Tensor& x) override { return proj_(self_attention(qkv_(x), heads_)); }
  void visit(Visitor& v) override;
  std::string str() const override { return concat("SelfAttention(", heads_, " heads)"); }

 private:
  int64_t heads_;
  Linear qkv_, proj_;
};

// Two linear layers with GELU between them, for each token by itself.
class Mlp : public Module {
 public:
  Mlp(int64_t width, int64_t hidden);
  Tensor forward(const Tensor& x) override { return fc2_(gelu(fc1_(x))); }
  void visit(Visitor& v) override;
  std::string str() const override { return "Mlp"; }

 private:
  Linear fc1_, fc2_;
};

// y = x + attention(norm(x)), then y + mlp(norm(y)).
class TransformerBlock : public Module {
 public:
  struct Options {
    int64_t width = 192, heads = 3;
    int64_t hidden = 768;  // of the Mlp
    double drop_path = 0;  // of each branch
  };
  explicit TransformerBlock(const Options& options);
  Tensor forward(const Tensor& x) override;
  void visit(Visitor& v) override;
  std::string str() const override { return "TransformerBlock"; }

 private:
  LayerNorm norm1_;
  SelfAttention attn_;
  DropPath drop1_;
  LayerNorm norm2_;
  Mlp mlp_;
  DropPath drop2_;
};

inline constexpr LayerNorm::Options kTransformerNorm = {.eps = 1e-6};  // timm's

}  // namespace ringtape::nn
