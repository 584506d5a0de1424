// Collectives with gradients: several ranks together compute the same as one process with all their tensors.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "comm/parallel/ops.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using ringtape::test::values;

Tensor drawn(const Shape& shape, uint64_t seed) {
  std::vector<double> x(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(double(seed * 1000 + i) * 1.7);
  return from_host(x, shape);
}

// The loss of a rank from the result of a collective; it depends on the rank, so that every rank's gradient differs.
Tensor loss_of(const Tensor& y, int rank) { return sum(mul(square(y), drawn(y.shape(), uint64_t(rank) + 50))); }

struct Case {
  const char* name;
  Shape (*shape)(int n);                                  // of each rank's x
  Tensor (*ranks)(ProcessGroup& group, const Tensor& x);  // what a rank computes
  Tensor (*single)(const Tensors& xs, int rank);          // the same, from all ranks' x
};

Tensor total(const Tensors& xs) {
  Tensor y = xs[0];
  for (size_t r = 1; r < xs.size(); ++r) y = y + xs[r];
  return y;
}

const Case kCases[] = {
    {"all_reduce",
     [](int) {
       return Shape{3, 2};
     },
     [](ProcessGroup& g, const Tensor& x) { return all_reduce(g, tanh(x)); },
     [](const Tensors& xs, int) {
       Tensors ys;
       for (const Tensor& x : xs) ys.push_back(tanh(x));
       return total(ys);
     }},
    {"all_gather",
     [](int) {
       return Shape{2, 3};
     },
     [](ProcessGroup& g, const Tensor& x) { return all_gather(g, exp(x)); },
     [](const Tensors& xs, int) {
       Tensors ys;
       for (const Tensor& x : xs) ys.push_back(exp(x));
       return concat(ys);
     }},
    {"reduce_scatter",
     [](int n) {
       return Shape{2 * n, 3};
     },
     [](ProcessGroup& g, const Tensor& x) { return reduce_scatter(g, x); },
     [](const Tensors& xs, int rank) { return slice(total(xs), 0, 2 * rank, 2 * rank + 2); }},
    // Several collectives in a row, one of them twice.
    {"chain",
     [](int n) {
       return Shape{n, 2};
     },
     [](ProcessGroup& g, const Tensor& x) {
       const Tensor part = reduce_scatter(g, square(x));
       return add(all_gather(g, part), all_reduce(g, sigmoid(x)));
     },
     [](const Tensors& xs, int) {
       Tensors squares, sigmoids;
       for (const Tensor& x : xs) squares.push_back(square(x)), sigmoids.push_back(sigmoid(x));
       return total(squares) + total(sigmoids);
     }},
};

TEST(CommOps, GradientsAreThoseOfOneProcess) {
  for (const Case& c : kCases)
    for (const int n : {1, 2, 3, 5}) {
      Tensors xs;
      for (int r = 0; r < n; ++r) xs.push_back(leaf(drawn(c.shape(n), uint64_t(r))));
      Tensor loss;
      for (int r = 0; r < n; ++r) {
        const Tensor part = loss_of(c.single(xs, r), r);
        loss = loss.defined() ? loss + part : part;
      }
      backward(loss);

      Tensors losses(static_cast<size_t>(n)), gradients(static_cast<size_t>(n));
      const std::string cause = test::kThreadWorlds[0].open(n, 1, Seconds(30), [&](std::unique_ptr<Transport> t) {
        ProcessGroup group(std::move(t));
        const Tensor x = leaf(drawn(c.shape(n), uint64_t(group.rank())));
        const Tensor own = loss_of(c.ranks(group, x), group.rank());
        backward(own);
        losses[size_t(group.rank())] = own.detach();
        gradients[size_t(group.rank())] = grad(x);
      });
      ASSERT_EQ(cause, "") << c.name;
      ringtape::test::expect_close(total(losses), loss, 1e-12, 1e-12, concat(c.name, " of ", n, " ranks"));
      for (int r = 0; r < n; ++r)
        ringtape::test::expect_close(gradients[size_t(r)], grad(xs[size_t(r)]), 1e-12, 1e-12,
                                     concat("gradient of ", c.name, ", rank ", r, " of ", n));
    }
}

// Also compared with central differences over the ranks: dL/dx of the sum of all losses.
TEST(CommOps, GradientsAgreeWithFiniteDifferences) {
  constexpr int n = 3;
  constexpr double eps = 1e-6;
  for (const Case& c : kCases) {
    const std::string cause = test::kThreadWorlds[0].open(n, 1, Seconds(30), [&](std::unique_ptr<Transport> t) {
      ProcessGroup group(std::move(t));
      const Tensor x = leaf(drawn(c.shape(n), uint64_t(group.rank())));
      backward(loss_of(c.ranks(group, x), group.rank()));
      const auto sum_of_losses = [&](const Tensor& at) {
        const NoGrad no_grad;
        const Tensor own = reshape(loss_of(c.ranks(group, at), group.rank()), {1});
        return all_reduce(group, own).item();
      };
      for (int rank = 0; rank < n; ++rank)
        for (int64_t i = 0; i < x.size(); ++i) {
          const Tensor up = drawn(c.shape(n), uint64_t(group.rank())), down = drawn(c.shape(n), uint64_t(group.rank()));
          if (rank == group.rank()) up.data<double>()[i] += eps, down.data<double>()[i] -= eps;
          const double slope = (sum_of_losses(up) - sum_of_losses(down)) / (2 * eps);
          const double given = values(grad(x))[size_t(i)];
          if (rank == group.rank() && std::abs(slope - given) > 1e-5 + 1e-3 * std::abs(slope))
            throw CommError(concat(c.name, ": the gradient of element ", i, " on rank ", rank, " is ", given,
                                   ", the slope ", slope));
        }
    });
    EXPECT_EQ(cause, "");
  }
}

TEST(CommOps, ShapesAreChecked) {
  ProcessGroup group(threads_transport({0, 1, memory_store(), std::make_shared<Failure>(), Seconds(5)}));
  EXPECT_EQ(ringtape::test::message_of<ShapeError>([&] { all_gather(group, Tensor(Shape{})); }),
            "all_gather: x has shape (), expected a first axis");
  EXPECT_EQ(all_gather(group, zeros({2, 3})).shape(), Shape({2, 3}));
}

}  // namespace
}  // namespace ringtape::comm
