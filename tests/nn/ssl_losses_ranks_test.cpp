// The losses over ranks: what several compute with their parts of a batch is what one computes with all of it.
#include <cmath>
#include <numeric>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "comm/parallel/ops.h"
#include "nn/loss/losses.h"
#include "nn/loss/nt_xent.h"
#include "nn/loss/swav.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/support.h"

namespace ringtape::nn {
namespace {

using test::expect_close;

// Runs f(group) on n ranks; returns why it failed.
template <class F> std::string on_ranks(int n, F&& f) {
  return comm::test::kThreadWorlds[0].open(n, 1, comm::Seconds(30), [&](std::unique_ptr<comm::Transport> t) {
    comm::ProcessGroup group(std::move(t));
    f(group);
  });
}

// A batch and how many of its rows each rank has. No two rows or columns are alike,
// and later ranks' rows are further out.
struct Batch {
  std::vector<int64_t> counts;
  int64_t d = 5;

  int64_t rows() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  int64_t begin(int rank) const { return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0}); }
  double share(int rank) const { return double(counts[size_t(rank)]) / double(rows()); }
  Tensor view(int v) const {
    std::vector<double> x;
    for (int64_t i = 0; i < rows() * d; ++i) {
      const double column = double(i % d), angle = 1.3 * double(i) + double(i % d * i % 7) + 2.1 * v;
      x.push_back((1 + 0.1 * double(i / d)) * std::sin(angle) + 0.2 * column);
    }
    return from_host(x, {rows(), d});
  }
  Tensors views(int count) const {
    Tensors z;
    for (int v = 0; v < count; ++v) z.push_back(view(v));
    return z;
  }
  Tensors part(const Tensors& whole, int rank) const {
    Tensors z;
    for (const Tensor& x : whole)
      z.push_back(contiguous(slice(x.detach(), 0, begin(rank), begin(rank) + counts[size_t(rank)])));
    return z;
  }
};

// Equally many rows where the loss needs them.
std::vector<Batch> batches_for(const Loss& loss) {
  if (loss.over_ranks == OverRanks::gathers) return {{{3, 3}}, {{2, 2, 2}}, {{3, 3, 3, 3}}};
  return {{{2, 5}}, {{4, 2, 3}}, {{3, 6, 2, 4}}};
}

struct Outcome {
  double loss = 0;
  Tensors gradients;  // of the views; undefined where there is none
};

Outcome follow(const Loss& loss, const Tensors& z, double share, comm::ProcessGroup* group) {
  Tensors leaves;
  for (const Tensor& x : z) leaves.push_back(leaf(x));
  const Tensor y = loss.call(leaves, group) * share;
  backward(y);
  Outcome out{y.item(), {}};
  for (const Tensor& x : leaves) out.gradients.push_back(grad(x));
  return out;
}

std::vector<Outcome> follow_on_ranks(const Loss& loss, const Batch& batch) {
  std::vector<Outcome> ranks(batch.counts.size(), {0, Tensors(size_t(loss.views))});
  EXPECT_SILENT(on_ranks(int(ranks.size()), [&](comm::ProcessGroup& group) {
    const int r = group.rank();
    ranks[size_t(r)] = follow(loss, batch.part(batch.views(loss.views), r), batch.share(r), &group);
  })) << loss.name;
  return ranks;
}

TEST(SslLossesOverRanks, AreThatOfTheWholeBatch) {
  for (const Loss& loss : losses())
    for (const Batch& batch : batches_for(loss)) {
      if (!loss.exact) continue;
      const std::string what = concat(loss.name, " on ", batch.counts.size(), " ranks");
      const std::vector<Outcome> ranks = follow_on_ranks(loss, batch);
      const Outcome one = follow(loss, batch.views(loss.views), 1, nullptr);
      double total = 0;
      for (const Outcome& rank : ranks) total += rank.loss;
      EXPECT_NEAR(total, one.loss, 1e-9 * (1 + std::abs(one.loss))) << what;
      for (size_t v = 0; v < one.gradients.size(); ++v) {
        Tensors parts;
        for (const Outcome& rank : ranks)
          if (rank.gradients[v].defined()) parts.push_back(rank.gradients[v]);
        ASSERT_EQ(parts.size(), one.gradients[v].defined() ? ranks.size() : 0) << what;
        if (!parts.empty())
          expect_close(ringtape::concat(parts), one.gradients[v], 1e-9, 1e-9, concat(what, ", gradient of view ", v));
      }
    }
}

// Those that are another loss than one rank's: the gradient against central differences of the sum over ranks.
TEST(SslLossesOverRanks, GradientsAreThoseOfTheSum) {
  constexpr double eps = 1e-6;
  for (const Loss& loss : losses()) {
    if (loss.exact) continue;
    const Batch batch{{3, 4, 2}, 3};
    const std::vector<Outcome> ranks = follow_on_ranks(loss, batch);
    for (const Outcome& rank : ranks) ASSERT_TRUE(rank.gradients[1].defined()) << loss.name;
    const std::string cause = on_ranks(3, [&](comm::ProcessGroup& group) {
      const NoGrad no_grad;
      const int own = group.rank();
      for (int rank = 0; rank < 3; ++rank)
        for (int64_t i = 0; i < batch.counts[size_t(rank)] * batch.d; ++i) {
          const auto moved = [&](double step) {
            const Tensors z = batch.part(batch.views(loss.views), own);
            if (own == rank) z[1].data<double>()[i] += step;
            return comm::all_reduce(group, reshape(loss.call(z, &group) * batch.share(own), {1})).item();
          };
          const double slope = (moved(eps) - moved(-eps)) / (2 * eps),
                       given = ranks[size_t(rank)].gradients[1].data<double>()[i];
          RT_CHECK(std::abs(slope - given) <= 1e-5 + 1e-3 * std::abs(slope), "rank ", rank, ", element ", i, ": ",
                   given, ", not ", slope);
        }
    });
    EXPECT_EQ(cause, "") << loss.name;
  }
}

// The known values of two ranks' losses, and rank 0's gradient of their unweighted sum.
TEST(SslLossesOverRanks, NtXentToTheDigit) {
  std::vector<double> a, b;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 3; ++j) a.push_back(std::sin(1 + 3 * i + j)), b.push_back(std::cos(1 + 3 * i + j) + 0.1 * i);
  const Batch batch{{2, 2}};
  const Tensors whole{from_host(a, {4, 3}), from_host(b, {4, 3})};
  std::vector<double> loss(2), gradient;
  ASSERT_EQ(on_ranks(2,
                     [&](comm::ProcessGroup& group) {
                       const int r = group.rank();
                       const Tensors z = batch.part(whole, r);
                       const Tensor own = leaf(z[0]), y = nt_xent_loss(own, z[1], 0.5, &group);
                       backward(y);
                       loss[size_t(r)] = y.item();
                       if (r == 0) gradient = test::values(grad(own));
                     }),
            "");
  EXPECT_NEAR(loss[0], 2.635553731154, 6e-13);
  EXPECT_NEAR(loss[1], 2.584227735018, 6e-13);
  const double want[] = {-0.379099513373, 0.243809512479, 0.689525743824};
  for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(gradient[j], want[j], 6e-13) << j;
}

TEST(SslLossesOverRanks, UnequalRowsAreAnError) {
  for (const Loss& loss : losses()) {
    if (loss.over_ranks != OverRanks::gathers) continue;
    const Batch batch{{2, 3}};
    const std::string cause = on_ranks(
        2, [&](comm::ProcessGroup& group) { loss.call(batch.part(batch.views(loss.views), group.rank()), &group); });
    for (const char* own :
         {"all_gather #1 (f64, 20 elements)", "all_gather #1 (f64, 30 elements)"})  // whoever sees it first says so
      EXPECT_MENTIONS(cause, own) << loss.name;
  }
}

// A group of one rank is no group.
TEST(SslLossesOverRanks, OneRankIsTheSame) {
  for (const Loss& loss : losses()) {
    const Batch batch{{6}};
    const Outcome one = follow(loss, batch.views(loss.views), 1, nullptr), ranks = follow_on_ranks(loss, batch)[0];
    EXPECT_EQ(one.loss, ranks.loss) << loss.name;
    for (size_t v = 0; v < one.gradients.size(); ++v)
      if (one.gradients[v].defined()) {
        EXPECT_TRUE(test::same_bytes(one.gradients[v], ranks.gradients[v])) << loss.name;
      }
  }
}

// Codes of each rank's rows are those of all rows together, with ranks that have none and a
// queue shorter than the ranks are many.
TEST(SslLossesOverRanks, SinkhornBalancesOverTheGroup) {
  for (const int64_t queued : {0, 2, 7}) {
    const Batch batch{{3, 0, 4}, 4};
    const Tensor scores = batch.view(0), queue = queued ? slice(batch.view(1), 0, 0, queued) : Tensor{};
    Tensors codes(3);
    ASSERT_EQ(on_ranks(3,
                       [&](comm::ProcessGroup& group) {
                         codes[size_t(group.rank())] =
                             sinkhorn(batch.part({scores}, group.rank())[0], {}, &group, queue);
                       }),
              "");
    expect_close(ringtape::concat(codes), sinkhorn(scores, {}, nullptr, queue), 1e-12, 1e-15,
                 concat("codes with a queue of ", queued));
  }
}

}  // namespace
}  // namespace ringtape::nn
