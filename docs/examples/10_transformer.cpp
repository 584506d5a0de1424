// A transformer of one block, from operations: it learns to turn sequences of digits round.
// Prints:
//   of the digits, 1.00 are right
#include <ringtape/autograd/create.h>
#include <ringtape/nn/nn.h>
#include <ringtape/train/optim/adam.h>

#include <cmath>
#include <cstdio>

using namespace ringtape;

class Transformer : public nn::Module {
 public:
  Transformer(int64_t length, int64_t width, int64_t heads)
      : heads_(heads), digits_(10, width), places_(length, width), norm1_({width}), norm2_({width}), norm3_({width}),
        qkv_(width, 3 * width), out_(width, width), up_(width, 4 * width), down_(4 * width, width), logits_(width, 10) {
  }

  Tensor forward(const Tensor& index) override {  // (batch, length)
    const Tensor x = digits_(index) + places_(arange(index.dim(1)));
    const Tensor y = x + attention(norm1_(x));
    const Tensor z = y + down_(gelu(up_(norm2_(y))));
    return logits_(norm3_(z));
  }
  void visit(nn::Visitor& v) override {
    v.child("digits", digits_), v.child("places", places_), v.child("norm1", norm1_), v.child("norm2", norm2_);
    v.child("norm3", norm3_), v.child("qkv", qkv_), v.child("out", out_), v.child("up", up_), v.child("down", down_);
    v.child("logits", logits_);
  }
  std::string str() const override { return "Transformer"; }

 private:
  Tensor attention(const Tensor& x) {
    Tensors parts;  // queries, keys and values (batch, heads, length, width of a head)
    for (const Tensor& t : chunk(qkv_(x), 3, -1))
      parts.push_back(transpose(reshape(t, {x.dim(0), x.dim(1), heads_, -1}), 1, 2));
    const Tensor scores = matmul(parts[0], transpose(parts[1])) / std::sqrt(double(parts[0].dim(-1)));
    return out_(reshape(transpose(matmul(softmax(scores), parts[2]), 1, 2), x.shape()));
  }

  int64_t heads_;
  nn::Embedding digits_, places_;
  nn::LayerNorm norm1_, norm2_, norm3_;
  nn::Linear qkv_, out_, up_, down_, logits_;
};

int main() {
  manual_seed(1);
  Transformer network(6, 32, 4);
  FlatParameters parameters(network);
  Adam optimizer(parameters);
  for (int step = 0; step < 300; ++step, optimizer.zero_grad()) {
    const Tensor x = cast(rand({64, 6}, 0, 10), DType::i64), target = flip(x, 1), logits = network(x);
    backward(cross_entropy(logits, target));
    optimizer.step(3e-3);
    if (step == 299) std::printf("of the digits, %.2f are right\n", mean(equal(argmax(logits, -1), target)).item());
  }
}
