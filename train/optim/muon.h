#pragma once
#include "train/optim/adam.h"

namespace ringtape {

// x (R, C) with its singular values moved near 1, by five steps of a Newton-Schulz iteration of degree 5.
Tensor orthogonalized(Tensor x);

// Momentum whose steps are orthogonalised (Jordan et al., "Muon: an optimizer for hidden layers in neural networks",
// 2024). A parameter of two axes or more is seen as a matrix W (R, C) of its first axis and all others, with gradient
// G:
//   V = momentum V + G;   X = (G + momentum V) / its Frobenius norm, transposed if R > C
//   five times:  A = X X^T;   X = 3.4445 X + (-4.775 A + 2.0315 A A) X
//   (Newton-Schulz: singular values become about 1)
//   W = (1 - lr weight_decay) W - lr sqrt(max(1, R / C)) X
// All in the precision of the parameters. One-dimensional parameters (biases, scales and shifts of norms) get AdamW,
// with their own learning rate.
class Muon : public Adam {
 public:
  struct Options {
    double momentum = 0.95;
    double weight_decay = 0;
    double rest_lr = 0.015;  // learning rate of the parameters that AdamW updates, relative to lr
  };
  explicit Muon(FlatParameters& parameters) : Muon(parameters, Options{}) {}
  Muon(FlatParameters& parameters, Options options)
      : Adam(parameters, {.weight_decay = options.weight_decay, .decoupled = true}), options_(options) {}

  // Of the orthogonalised steps alone.
  bool set_momentum(double momentum) override { return options_.momentum = momentum, true; }

 private:
  void update(int64_t begin, int64_t end, const View& factor, const Again<double>& lr) override;
  void update_matrix(const FlatParameters::Parameter& p, const View& factor, const View& taken,
                     const Again<double>& lr);

  Options options_;
};
void visit(Fields& f, Muon::Options& o);

}  // namespace ringtape
