// Many threads use one prepared network at once, also for the first time, with teams of their own.
#include <thread>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/prepared_by_size.h"
#include "autograd/tape.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::same_bytes;

// A residual block with what is around it; its normalisations keep their statistics as a module does.
struct Network {
  Tensor stem = randn({16, 3, 3, 3}), conv = randn({16, 3, 3, 16}, 0, 0.1), shortcut = randn({16, 1, 1, 16}),
         head = randn({5, 16});
  Tensor scale = rand({16}, 0.5, 2), shift = randn({16});
  RunningStatistics running{randn({16}), rand({16}, 0.5, 2), {}};

  Tensor norm(const Tensor& x, Activation f = Activation::none, const Tensor& residual = {}) {
    for (Tensor* t : {&running.mean, &running.var}) *t = cast(*t, DType::f32);
    return batch_norm(x, scale, shift, running, {.training = false}, f, residual);
  }
  Tensor forward(const Tensor& x) {
    const Tensor h = max_pool2d(norm(conv2d(x, stem), Activation::relu), 2, 2, square_window(2));
    const Tensor y = norm(conv2d(h, conv, {}, square_window(1, 1)), Activation::relu, norm(conv2d(h, shortcut)));
    return linear(mean(y, {1, 2}), head);
  }
};

TEST(PreparedThreads, UseOneNetworkAtOnce) {
  Network network;
  const Tensor middle = randn({3});
  const auto f = [&](const Tensor& x) { return network.forward(x); };
  const auto of_batch = [&](const Tensor& x) { return x - mean(x, {0, 1, 2}) * middle; };  // it cannot be prepared
  const PreparedBySize prepared(f), again(f), unprepared(of_batch);
  const NoGrad no_grad;
  Tensors x, y, z;
  for (const int64_t side : {9, 12, 17}) {
    x.push_back(randn({7, side, side, 3}));
    y.push_back(prepared(x.back()));
    z.push_back(of_batch(x.back()));
    test::expect_close(y.back(), f(x.back()), 0, 1e-5 * max(abs(y.back())).item(), "logits");
  }
  std::vector<int> right(6);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      set_threads(1 + int(t % 3));
      for (size_t i = 0; i < 6; ++i) {
        const size_t k = (t + i) % x.size();
        right[t] +=
            same_bytes(prepared(x[k]), y[k]) && same_bytes(again(x[k]), y[k]) && same_bytes(unprepared(x[k]), z[k]);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, std::vector<int>(6, 6));
}

}  // namespace
}  // namespace ringtape
