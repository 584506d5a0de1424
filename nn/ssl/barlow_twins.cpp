#include "nn/loss/barlow_twins.h"

#include "nn/ssl/method.h"

// Zbontar et al., "Barlow Twins: self-supervised learning via redundancy reduction", 2021.
namespace ringtape::nn {
namespace {

struct BarlowTwinsSettings {
  BarlowTwinsOptions loss;
  std::string statistics = "biased";
  HeadOptions projection{2048, 2048};
  bool gather = false;
};
void visit(Fields& f, BarlowTwinsSettings& o) {
  f("barlow-lambda", o.loss.lambda,
    {.help = "weight of the off-diagonal terms of the loss", .unit = "X", .range = kReal});
  f("barlow-statistics", o.statistics,
    {.help = "how outputs are standardised (biased: by variance + 1e-5; unbiased: by the variance over n - 1, as "
             "lightly did until 2023; exact: by the variance over all ranks)",
     .unit = "WHICH",
     .choices = [] {
       return std::vector<std::string>{"biased", "unbiased", "exact"};
     }});
  f("loss-scale", o.loss.scale, {.help = "constant factor of the loss", .unit = "X", .range = kReal});
  visit_projection(f, o.projection);
  visit_gather(f, o.gather);
}

class BarlowTwins : public Method {
 public:
  BarlowTwins(Encoder encoder, const BarlowTwinsSettings& o) : Method(std::move(encoder), o.gather), options_(o.loss) {
    options_.unbiased = o.statistics == "unbiased";
    options_.exact = o.statistics == "exact";
  }

  Tensors outputs(const Tensors& views) override { return {encode(views[0]), encode(views[1])}; }
  Tensor loss(const Tensors& z) override { return barlow_twins_loss(z[0], z[1], options_, gathering()); }
  std::string str() const override { return concat("BarlowTwins(lambda ", options_.lambda, ")"); }

 private:
  BarlowTwinsOptions options_;
};

const RegisterMethod register_barlow_twins(
    {.name = "barlow_twins",
     .summary = "makes the correlation matrix of two views' outputs the identity matrix",
     .settings = BarlowTwinsSettings{},
     .make = make_with_encoder<BarlowTwins, BarlowTwinsSettings>,
     .repeats = true});

}  // namespace
}  // namespace ringtape::nn
