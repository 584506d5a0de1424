// Every op's workloads, from its record: time, GB/s or GFLOP/s, and the share of the device's peak, which is measured
// at the start of the same run. Google Benchmark's flags apply; RINGTAPE_THREADS sets the number of CPU threads.
//
// On the CPU each call is timed. A GPU works asynchronously: there, batches of calls of about 5 ms are timed from idle
// to idle, so that the time of a call is that of the host to issue it (issue_us) or that of the device, whichever is
// longer. Each call of a batch has its own operands, up to more than the GPU's caches hold.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "autograd/create.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "bench/peak.h"
#include "bench/timing.h"
#include "core/runtime.h"
#include "kernels/kernel.h"

namespace ringtape {
namespace {

struct Settings {
  Device device;
  DType dtype = DType::f32;
} settings;

struct Peak {
  double bandwidth, flops;
} peak;

bool any_failed = false;

bool on_gpu() { return settings.device.type == DeviceType::cuda; }

double bytes_of(const Tensor& x) { return double(x.size()) * double(size_of(x.dtype())); }
double bytes_of(const Tensors& tensors) {
  double bytes = 0;
  for (const Tensor& x : tensors) bytes += bytes_of(x);
  return bytes;
}

// Bytes that a call must read: of their first operand these ops read only the part that they write.
double bytes_read(const Op& op, const Tensors& inputs, const Tensor& y) {
  const auto is = [&op](const char* name) { return !std::strcmp(op.name, name); };
  const bool reads_part = is("slice") || is("index_select") || is("embedding");
  return reads_part ? bytes_of(inputs) - bytes_of(inputs[0]) + bytes_of(y) : bytes_of(inputs);
}

Tensors inputs_of(const Sample& sample) {
  Tensors out;
  for (const Input& in : sample.inputs)
    if (in.fill == Fill::real) out.push_back(rand(in.shape, in.low, in.high, settings.dtype, settings.device));
    else out.push_back(to(draw({"", {in}, {}}, settings.dtype, 1)[0], settings.device));
  return out;
}

// Number of sets of operands that calls use in turn.
int sets_for(double bytes) {
  constexpr double kBeyondTheCaches = 256 << 20, kMax = 16;
  return on_gpu() ? int(std::clamp(kBeyondTheCaches / bytes + 1, 2.0, kMax)) : 1;
}

// Runs the loop of f(i), where i counts the calls, then reports the rate. `bytes` is the minimum traffic: each operand
// read or written once.
template <class F> void measure(benchmark::State& state, const Op& op, double bytes, double flops, const F& f) {
  size_t i = 0;
  bench::Batch all;
  if (on_gpu()) {
    const auto call = [&] { f(i++); };
    const int64_t calls = bench::calls_lasting(5e-3, settings.device, call);
    while (state.KeepRunningBatch(calls)) {
      const bench::Batch batch = bench::run_batch(settings.device, calls, call);
      state.SetIterationTime(batch.seconds);
      all.seconds += batch.seconds;
      all.issue_seconds += batch.issue_seconds;
    }
    state.counters["issue_us"] = 1e6 * all.issue_seconds / double(state.iterations());
  } else {
    const auto begin = std::chrono::steady_clock::now();
    for (auto _ : state) f(i++);
    all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  const double seconds = all.seconds / double(state.iterations());
  state.counters[op.flops ? "GFLOP/s" : "GB/s"] = (op.flops ? flops : bytes) / seconds / 1e9;
  state.counters["%peak"] = 100 * (op.flops ? flops / peak.flops : bytes / peak.bandwidth) / seconds;
}

void forward(benchmark::State& state, const Op& op, const Sample& sample) {
  std::vector<Tensors> inputs = {inputs_of(sample)};
  Tensors y = {sample.call(inputs[0])};
  const double bytes = bytes_read(op, inputs[0], y[0]) + bytes_of(y[0]),
               flops = op.flops ? op.flops(inputs[0], y[0]) : 0;
  for (int set = sets_for(bytes); set > 1; --set) {
    inputs.push_back(inputs_of(sample));
    y.push_back(sample.call(inputs.back()));
  }
  y[0] = sample.call(inputs[0]);  // now the arena has all blocks of the loop
  measure(state, op, bytes, flops, [&](size_t i) { y[i % y.size()] = sample.call(inputs[i % y.size()]); });
}

// A recorded call, and the leaves that get gradients.
struct Recorded {
  Tensors inputs, leaves;
  Tensor y, dy;
};

Recorded record_call(const Sample& sample) {
  Recorded r;
  r.inputs = inputs_of(sample);
  for (Tensor& x : r.inputs)
    if (is_float(x.dtype())) r.leaves.push_back(x = leaf(x));
  r.y = sample.call(r.inputs);
  r.dy = rand(r.y.shape(), -1, 1, r.y.dtype(), settings.device);
  return r;
}

void backward_only(benchmark::State& state, const Op& op, const Sample& sample) {
  std::vector<Recorded> calls = {record_call(sample)};
  // Reads of dy and writes of gradients, without other needs of the op. A product has one product of the same size per
  // gradient.
  const double bytes = bytes_of(calls[0].dy) + bytes_of(calls[0].leaves);
  const double flops = op.flops ? double(calls[0].leaves.size()) * op.flops(calls[0].inputs, calls[0].y) : 0;
  for (int set = sets_for(bytes); set > 1; --set) calls.push_back(record_call(sample));
  const auto pass = [&](size_t i) {
    const Recorded& r = calls[i % calls.size()];
    for (const Tensor& x : r.leaves) zero_grad(x);
    backward(r.y, r.dy);
  };
  pass(0);  // the arena has its memory now
  measure(state, op, bytes, flops, pass);
}

// An op that throws fails only its own benchmark.
template <class F> void add_benchmark(const std::string& name, const F& run) {
  auto* b = benchmark::RegisterBenchmark(name.c_str(), [run](benchmark::State& state) {
    try {
      run(state);
    } catch (const std::exception& e) {
      any_failed = true;
      state.SkipWithError(e.what());
    }
  });
  b->Unit(benchmark::kMicrosecond);
  if (on_gpu()) b->UseManualTime();
  else b->UseRealTime();
}

void add_benchmarks() {
  for (const Op& op : ops())
    for (const Sample& w : op.workloads) {
      if (on_gpu() && !std::strcmp(op.name, "to")) continue;                                  // the bus, not a kernel
      if (settings.dtype != DType::f32 && w.tag.find("f32_") != std::string::npos) continue;  // made for f32
      const std::string name = std::string(op.name) + "/" + w.tag;
      add_benchmark(name + "/forward", [&](benchmark::State& state) { forward(state, op, w); });
      if (op.differentiable)
        add_benchmark(name + "/backward", [&](benchmark::State& state) { backward_only(state, op, w); });
    }
}

// Parses --device and --dtype and removes them from the arguments.
Settings parse(int& argc, char** argv) {
  Settings s;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i], name = argument.substr(0, argument.find('='));
    if (name != "--device" && name != "--dtype") {
      argv[kept++] = argv[i];
      continue;
    }
    const bool attached = name != argument;
    RT_CHECK_AS(UsageError, attached || i + 1 < argc, name, ": needs a value");
    const std::string value = attached ? argument.substr(name.size() + 1) : argv[++i];
    if (name == "--device") s.device = parse_device(value);
    else s.dtype = parse_dtype(value);
    RT_CHECK_AS(UsageError, is_float(s.dtype), name, ": expected f16, bf16, f32 or f64, got '", value, "'");
  }
  argv[argc = kept] = nullptr;
  return s;
}

void help() {
  std::printf("ops_bench [--device cpu|cuda[:N]] [--dtype f32|bf16|f16|f64] and Google Benchmark's flags:\n");
  benchmark::PrintDefaultHelp();
}

int run(int argc, char** argv) {
  settings = parse(argc, argv);
  benchmark::Initialize(&argc, argv, help);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  runtime(settings.device);  // throws if there is none
  if (on_gpu()) peak = {bench::copy_bandwidth(settings.device), bench::matmul_flops(settings.device, settings.dtype)};
  else peak = {bench::peak_bandwidth(), bench::peak_flops()};
  const std::string dtype(name_of(settings.dtype)), peak_dtype = on_gpu() ? dtype : "f32";
  benchmark::AddCustomContext("device", settings.device.str());
  benchmark::AddCustomContext("dtype", dtype);
  benchmark::AddCustomContext("isa", std::string(name_of(cpu_isa())));
  benchmark::AddCustomContext("threads", std::to_string(threads()));
  benchmark::AddCustomContext("peak copy GB/s", std::to_string(peak.bandwidth / 1e9));
  benchmark::AddCustomContext("peak " + peak_dtype + " GFLOP/s", std::to_string(peak.flops / 1e9));
  add_benchmarks();
  const bool any = benchmark::RunSpecifiedBenchmarks() > 0;
  benchmark::Shutdown();
  return any && !any_failed ? 0 : 1;
}

}  // namespace
}  // namespace ringtape

int main(int argc, char** argv) {
  try {
    return ringtape::run(argc, argv);
  } catch (const ringtape::UsageError& e) {
    std::fprintf(stderr, "ops_bench: error: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ops_bench: error: %s\n", e.what());
    return 1;
  }
}
