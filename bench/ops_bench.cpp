// Every op's workloads, from its record: time, GB/s or GFLOP/s, and how much that is of the machine's peak, which is
// measured at the start of the same run. Google Benchmark's flags apply; RINGTAPE_THREADS sets the threads.
#include <benchmark/benchmark.h>

#include <chrono>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "bench/peak.h"
#include "kernels/kernel.h"

namespace ringtape {
namespace {

struct Peak {
  double bandwidth, flops;
} peak;

double bytes_of(const Tensors& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += double(t.size()) * double(size_of(t.dtype()));
  return bytes;
}

// Runs the loop, then reports its rate. `bytes` is the least traffic: each operand read, or written, once.
template <class F>
void measure(benchmark::State& state, const Op& op, double bytes, double flops, const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) f();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / double(state.iterations());
  state.counters[op.flops ? "GFLOP/s" : "GB/s"] = (op.flops ? flops : bytes) / seconds / 1e9;
  state.counters["%peak"] = 100 * (op.flops ? flops / peak.flops : bytes / peak.bandwidth) / seconds;
}

void forward(benchmark::State& state, const Op& op, const Sample& sample) {
  const Tensors inputs = draw(sample, DType::f32, 1);
  Tensor y = sample.call(inputs);
  y = sample.call(inputs);  // from now on the arena has both blocks that the loop takes turns with
  measure(state, op, bytes_of(inputs) + bytes_of({y}), op.flops ? op.flops(inputs, y) : 0, [&] { y = sample.call(inputs); });
}

void backward_only(benchmark::State& state, const Op& op, const Sample& sample) {
  Tensors inputs = draw(sample, DType::f32, 1);
  for (Tensor& x : inputs)
    if (is_float(x.dtype())) x = leaf(x);
  const Tensor y = sample.call(inputs);
  const Tensor dy = draw({"", {{y.shape()}}, {}}, DType::f32, 2)[0];
  const auto pass = [&] {
    for (const Tensor& x : inputs)
      if (requires_grad(x)) zero_grad(x);
    backward(y, dy);
  };
  pass();  // the arena has its memory now
  Tensors gradients;
  for (const Tensor& x : inputs)
    if (requires_grad(x)) gradients.push_back(x);
  // dy read and the gradients written, whatever else the op needs; a product costs one of its size for each gradient.
  measure(state, op, bytes_of({dy}) + bytes_of(gradients), op.flops ? double(gradients.size()) * op.flops(inputs, y) : 0, pass);
}

}  // namespace
}  // namespace ringtape

int main(int argc, char** argv) {
  using namespace ringtape;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  peak = {bench::peak_bandwidth(), bench::peak_flops()};
  benchmark::AddCustomContext("isa", std::string(name_of(cpu_isa())));
  benchmark::AddCustomContext("threads", std::to_string(threads()));
  benchmark::AddCustomContext("peak copy GB/s", std::to_string(peak.bandwidth / 1e9));
  benchmark::AddCustomContext("peak f32 GFLOP/s", std::to_string(peak.flops / 1e9));
  for (const Op& op : ops())
    for (const Sample& w : op.workloads) {
      const std::string name = std::string(op.name) + "/" + w.tag;
      benchmark::RegisterBenchmark((name + "/forward").c_str(), [&](benchmark::State& s) { forward(s, op, w); })->UseRealTime()->Unit(benchmark::kMicrosecond);
      if (op.differentiable)
        benchmark::RegisterBenchmark((name + "/backward").c_str(), [&](benchmark::State& s) { backward_only(s, op, w); })->UseRealTime()->Unit(benchmark::kMicrosecond);
    }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
