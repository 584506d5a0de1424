// Distributed data parallelism: two ranks, here threads, each with half of every batch, learn what one learns with all.
// Prints:
//   after 5 steps both ranks have the weights of one device: yes
#include <ringtape/autograd/create.h>
#include <ringtape/nn/nn.h>
#include <ringtape/train/loop/step.h>

#include <cmath>
#include <cstdio>
#include <thread>

using namespace ringtape;

static constexpr int64_t kBatch = 8;

// The weights after five steps of this rank of the group.
static Tensor train(comm::ProcessGroup& group) {
  manual_seed(1);  // the same first weights and batches on all ranks
  nn::Sequential model;
  model.add<nn::Linear>(4, 16).add<nn::Tanh>().add<nn::Linear>(16, 3);
  nn::cast_to(model, DType::f64);
  Step step(model, cross_entropy_of(model, nullptr, 0), {}, {}, group);  // hooks send gradients while backward runs
  const int64_t each = kBatch / group.size(), begin = each * group.rank();
  for (int i = 0; i < 5; ++i) {
    const Tensor x = rand({kBatch, 4}, -1, 1, DType::f64),
                 y = from_host(std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1}, {kBatch});
    step.run(contiguous(slice(x, 0, begin, begin + each)), contiguous(slice(y, 0, begin, begin + each)), 0.01, {},
             {.samples = kBatch});
  }
  Tensors weights;
  for (const nn::Named& p : nn::named_parameters(model)) weights.push_back(reshape(p.tensor->detach(), {-1}));
  return concat(weights);
}

int main() {
  const Tensor alone = train(comm::alone());
  const auto store = comm::memory_store();  // where ranks find each other; processes take comm::job_from_environment()
  const auto failure = std::make_shared<comm::Failure>();
  Tensor weights[2];
  const auto rank = [&](int r) {
    comm::ProcessGroup group(comm::threads_transport({.rank = r, .size = 2, .store = store, .failure = failure}));
    weights[r] = train(group);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  double largest = 0;
  for (const Tensor& w : weights)
    for (int64_t i = 0; i < w.size(); ++i)
      largest = std::max(largest, std::abs(w.span<double>()[size_t(i)] - alone.span<double>()[size_t(i)]));
  std::printf("after 5 steps both ranks have the weights of one device: %s\n", largest < 1e-12 ? "yes" : "no");
  return largest < 1e-12 ? 0 : 1;
}
