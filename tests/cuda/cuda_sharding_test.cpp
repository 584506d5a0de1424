// Ranks on GPUs that share the optimizer's state get the bytes of ranks that each have all of it.
#include <map>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "core/runtime.h"
#include "kernels/copy.h"
#include "nn/nn.h"
#include "nn/ssl/teacher.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"
#include "train/loop/step.h"
#include "train/settings/options.h"

namespace ringtape {
namespace {

using test::kCuda;

struct Training {
  const char* optimizer;
  const char* precision = "f32";
  double clip = 0, ema = 0;
  bool taught = false;
};

nn::Encoder encoder() { return {std::make_unique<nn::Linear>(20, 90), std::make_unique<nn::Linear>(90, 5)}; }

// It learns the outputs of its own teacher.
struct Taught : nn::Module {
  const nn::Encoder student = encoder();
  nn::Teacher teacher{student, encoder(), {.momentum = 0.5}};
  Tensor forward(const Tensor& x) override { return student(x); }
  Outcome outcome(const Tensor& x) {
    const Tensor apart = (*this)(x)-teacher(x * 0.5);
    return {.loss = mean(apart * apart), .auxiliary_loss = {}, .logits = {}, .spread = {}};
  }
  void visit(nn::Visitor& v) override {
    v.child("backbone", *student.backbone), v.child("projection", *student.projection);
    teacher.visit(v);
  }
  std::string str() const override { return "Taught"; }
};

std::map<std::string, Tensor> train(comm::ProcessGroup& group, const Training& t, const std::string& strategy) {
  const Device device = group.transport().device();
  manual_seed(3);
  nn::Sequential plain;
  plain.add<nn::Linear>(20, 90).add<nn::ReLU>().add<nn::Linear>(90, 70).add<nn::ReLU>().add<nn::Linear>(70, 5);
  Taught taught;
  nn::Module& model = t.taught ? static_cast<nn::Module&>(taught) : plain;
  nn::move_to(model, device);
  TrainOptions o;
  o.step.optimizer.name = t.optimizer, o.step.clip_grad_norm = t.clip, o.step.ema = t.ema;
  o.execution.precision = t.precision, o.execution.deterministic = true;
  o.parallel.strategy.name = strategy, o.parallel.reducer.bucket_mb = 0.01;
  const Objective learn = [&](const Tensors& images, const Labels&) { return taught.outcome(images[0]); };
  Step step(model, t.taught ? learn : cross_entropy_of(model, nullptr, 0), o.step, o.execution, group, o.parallel);
  for (int i = 0; i < 2; ++i) {
    manual_seed(uint64_t(10 * i + group.rank()));
    const Tensor y = from_host(std::vector<int64_t>{i, 1, 2}, {3}, device);
    if (t.taught) taught.teacher.follow({i, 2});
    step.run(to(randn({3, 20}), device), y, 0.01, {}, {3 * group.size()});
  }
  std::map<std::string, Tensor> out;
  const auto keep = [&](const std::string& name, const Tensor& x) {
    Tensor dense(x.shape(), x.dtype(), x.device());
    copy(dense, x.detach());
    out.emplace(name, dense.copy_to(Device{}));
  };
  step.exchange([&] {
    for (const FileTensor& s : step.state()) keep("state " + s.name, s.get({0, s.rows()}));
    for (const FileTensor& s : step.average()) keep("average " + s.name, s.get({0, s.rows()}));
    for (const FileTensor& s : step.weights()) keep("file " + s.name, s.get({0, s.rows()}));
  });
  for (const nn::Named& p : nn::named_parameters(model)) keep("weight " + p.name, *p.tensor);
  return out;
}

TEST(CudaSharding, HasTheBytesOfDdp) {
  RT_NEEDS_CUDA();
  for (const int ranks : {2, 3}) {
    const std::string cause = comm::test::run_threads(ranks, 1, comm::Seconds(120), [&](comm::Context context) {
      const Device device{DeviceType::cuda, context.rank % runtime(kCuda).device_count()};
      comm::ProcessGroup group(comm::p2p_transport(std::move(context), device));
      set_threads(1);
      for (const Training& t : {Training{"adam", "f32", 0.5, 0.9},
                                {"lars", "f32", 0.5},
                                {"muon"},
                                {"sgd", "f16", 1},
                                {"adam", "bf16", 0, 0.9, true}}) {
        const auto whole = train(group, t, "ddp");
        for (const char* strategy : {"zero1", "zero2", "fsdp"}) {
          const auto shared = train(group, t, strategy);
          RT_CHECK(shared.size() == whole.size(), "other tensors");
          for (const auto& [name, x] : whole)
            RT_CHECK(test::same_bytes(shared.at(name), x), strategy, " with ", t.optimizer, ": ", name,
                     " has other bytes");
        }
      }
    });
    EXPECT_EQ(cause, "") << ranks << " ranks";
  }
}

}  // namespace
}  // namespace ringtape
