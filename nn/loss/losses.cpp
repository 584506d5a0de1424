#include "nn/loss/losses.h"

#include "autograd/create.h"
#include "autograd/ops.h"
#include "nn/loss/barlow_twins.h"
#include "nn/loss/memory_bank.h"
#include "nn/loss/negative_cosine.h"
#include "nn/loss/nt_xent.h"
#include "nn/loss/swav.h"
#include "nn/loss/vicreg.h"

namespace ringtape::nn {

namespace {

// Fixed rows for what a loss takes beside embeddings.
Tensor some_rows(int64_t n, const Tensor& like) {
  const Tensor x = reshape(arange(n * like.dim(1), DType::f64, like.device()), {n, like.dim(1)});
  return l2_normalize(sigmoid(square(x - 0.4 * double(n)) / double(n)) - 0.6);
}

// Embeddings as scores: two crops of full size and one more.
Tensor swav(const Tensors& z, comm::ProcessGroup* group, const Tensor& queue) {
  return swav_loss(z, {sinkhorn(z[0], {}, group, queue), sinkhorn(z[1], {}, group, queue)}, 0.1);
}

constexpr Loss kLosses[] = {
    {"nt_xent", OverRanks::gathers, true, 2,
     [](const Tensors& z, comm::ProcessGroup* group) { return nt_xent_loss(z[0], z[1], 0.5, group); }},
    {"memory_bank", OverRanks::local, true, 2,
     [](const Tensors& z, comm::ProcessGroup*) { return memory_bank_loss(z[0], z[1], some_rows(7, z[0]), 0.1); }},
    {"negative_cosine", OverRanks::local, true, 2, [](const Tensors& z, comm::ProcessGroup*) { return negative_cosine(z[0], z[1]); }},
    {"barlow_twins", OverRanks::averages, false, 2,
     [](const Tensors& z, comm::ProcessGroup* group) { return barlow_twins_loss(z[0], z[1], {}, group); }},
    {"barlow_twins_exact", OverRanks::averages, true, 2,
     [](const Tensors& z, comm::ProcessGroup* group) { return barlow_twins_loss(z[0], z[1], {.exact = true}, group); }},
    {"barlow_twins_unbiased", OverRanks::averages, true, 2,
     [](const Tensors& z, comm::ProcessGroup* group) {
       return barlow_twins_loss(z[0], z[1], {.scale = 0.1, .unbiased = true, .exact = true}, group);
     }},
    {"swav", OverRanks::balances, true, 3, [](const Tensors& z, comm::ProcessGroup* group) { return swav(z, group, {}); }},
    {"swav_queue", OverRanks::balances, true, 3,
     [](const Tensors& z, comm::ProcessGroup* group) { return swav(z, group, some_rows(5, z[0])); }},
    {"vicreg", OverRanks::gathers, true, 2, [](const Tensors& z, comm::ProcessGroup* group) { return vicreg_loss(z[0], z[1], {}, group); }},
};

}  // namespace

std::span<const Loss> losses() { return kLosses; }

}  // namespace ringtape::nn
