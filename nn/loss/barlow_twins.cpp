#include "nn/loss/barlow_twins.h"

#include "nn/loss/common.h"
#include "nn/loss/losses.h"

namespace ringtape::nn {

// Columns of z with mean 0 and deviation 1 over the rows of all ranks of the group; `rows` () is their number.
static Tensor standardised(const Tensor& z, const Tensor& rows, bool unbiased, comm::ProcessGroup* group) {
  constexpr double eps = 1e-5;
  const Tensor centred = z - sum_over(group, sum(z, {0})) / rows;
  const Tensor squares = sum_over(group, sum(square(centred), {0}));
  return centred / sqrt(unbiased ? squares / (rows - 1) : squares / rows + eps);
}

Tensor barlow_twins_loss(const Tensor& z0, const Tensor& z1, const BarlowTwinsOptions& options,
                         comm::ProcessGroup* group) {
  check_pair("barlow_twins_loss", z0, z1);
  const Autocast none(DType::f32);
  const Tensor both = concat({wide(z0), wide(z1)}, 1);
  const int64_t d = z0.dim(1);
  const Tensor own = full({}, double(z0.dim(0)), both.dtype(), both.device()), all = sum_over(group, own);
  const Tensor h = options.exact ? standardised(both, all, options.unbiased, group)
                                 : standardised(both, own, options.unbiased, nullptr);
  const Tensor c = sum_over(group, matmul(transpose(slice(h, 1, 0, d)), slice(h, 1, d, 2 * d))) / all;
  return (sum(square(diagonal(c) - 1)) + sum(square(off_diagonal(c))) * options.lambda) * options.scale;
}

static const RegisterLoss register_barlow_twins_loss({
    .name = "barlow_twins",
    .over_ranks = OverRanks::averages,
    .exact = false,
    .views = 2,
    .call = [](const Tensors& z, comm::ProcessGroup* group) { return barlow_twins_loss(z[0], z[1], {}, group); },
});
static const RegisterLoss register_exact_barlow_twins_loss({
    .name = "barlow_twins_exact",
    .over_ranks = OverRanks::averages,
    .exact = true,
    .views = 2,
    .call = [](const Tensors& z,
               comm::ProcessGroup* group) { return barlow_twins_loss(z[0], z[1], {.exact = true}, group); },
});
static const RegisterLoss register_unbiased_barlow_twins_loss({
    .name = "barlow_twins_unbiased",
    .over_ranks = OverRanks::averages,
    .exact = true,
    .views = 2,
    .call =
        [](const Tensors& z, comm::ProcessGroup* group) {
          return barlow_twins_loss(z[0], z[1], {.scale = 0.1, .unbiased = true, .exact = true}, group);
        },
});

}  // namespace ringtape::nn
