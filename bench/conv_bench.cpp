// conv2d with the shapes of ResNet-18 and ResNet-50 compared with oneDNN, alternating, each in a separate process.
// Prints the median over rounds of the median of a few calls, in GFLOP/s of the direct algorithm, and the ratio to
// oneDNN's direct convolution on NHWC, which PyTorch uses.
//   conv_bench [batch 128] [rounds 7] [part of a name] [f32|bf16: ours]
// RINGTAPE_THREADS sets the number of threads; with one, times are processor times.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "bench/apart.h"
#include "bench/peak.h"
#include "kernels/conv2d_prepared.h"
#include "kernels/kernel.h"

#if RINGTAPE_BENCH_ONEDNN
#include <dnnl.hpp>
#endif
#include <omp.h>
#include <time.h>

namespace ringtape {
namespace {

struct Layer {
  std::string name;
  int64_t size, c, k, kernel, stride;
  int count;  // occurrences in ResNet-18 for 32x32 images; 0: not in the last line
};
const Layer kLayers[] = {{"64 @ 32x32", 32, 64, 64, 3, 1, 4},
                         {"128 @ 16x16", 16, 128, 128, 3, 1, 3},
                         {"256 @ 8x8", 8, 256, 256, 3, 1, 3},
                         {"512 @ 4x4", 4, 512, 512, 3, 1, 3},
                         {"64-128 @ 32x32 s2", 32, 64, 128, 3, 2, 1},
                         {"128-256 @ 16x16 s2", 16, 128, 256, 3, 2, 1},
                         {"256-512 @ 8x8 s2", 8, 256, 512, 3, 2, 1},
                         {"64-128 1x1 s2", 32, 64, 128, 1, 2, 1},
                         {"128-256 1x1 s2", 16, 128, 256, 1, 2, 1},
                         {"256-512 1x1 s2", 8, 256, 512, 1, 2, 1},
                         {"stem 3-64 @ 32x32", 32, 3, 64, 3, 1, 1},
                         // 1x1 convolutions of ResNet-50's blocks
                         {"256-64 1x1 @ 32x32", 32, 256, 64, 1, 1, 0},
                         {"64-256 1x1 @ 32x32", 32, 64, 256, 1, 1, 0},
                         {"512-128 1x1 @ 16x16", 16, 512, 128, 1, 1, 0},
                         {"128-512 1x1 @ 16x16", 16, 128, 512, 1, 1, 0},
                         {"1024-256 1x1 @ 8x8", 8, 1024, 256, 1, 1, 0},
                         {"256-1024 1x1 @ 8x8", 8, 256, 1024, 1, 1, 0},
                         {"2048-512 1x1 @ 4x4", 4, 2048, 512, 1, 1, 0},
                         {"512-2048 1x1 @ 4x4", 4, 512, 2048, 1, 1, 0}};

enum Pass { forward, backward_data, backward_weights, prepared };  // forward with weights prepared for inference
const char* const kPasses[] = {"forward", "data", "weights", "prepared"};
enum Peer { ours, direct_nhwc, direct_any, winograd };
const char* const kPeers[] = {"ringtape", "nhwc", "blocked", "Winograd"};

double now() {
  if (threads() > 1) return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Seconds per call: the median of the calls of a quarter of a second, after two warm-up calls.
template <class F> double seconds_of(F&& call) {
  std::vector<double> times;
  double total = 0;
  for (int i = -2; i < 3 || total < 0.25; ++i) {
    const double begin = now();
    call();
    const double seconds = now() - begin;
    if (i >= 0) times.push_back(seconds), total += seconds;
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double our_seconds(const Layer& l, int64_t batch, Pass pass, DType dtype) {
  const Window window = square_window(l.stride, l.kernel / 2);
  const int64_t out = window.rows(l.size, l.kernel);
  const auto draw = [&](const Shape& shape) { return randn(shape, 0, 1, dtype); };
  const Tensor x = draw({batch, l.size, l.size, l.c}), w = draw({l.k, l.kernel, l.kernel, l.c}),
               y = draw({batch, out, out, l.k});
  if (pass == prepared) {
    const PreparedConv conv = prepare_conv2d(cast(w, DType::f32), View{}, window, {l.size, l.size, l.c}, dtype);
    return seconds_of([&] { conv2d_prepared(y, x, conv, View{}, true); });
  }
  return seconds_of([&] {
    if (pass == forward) conv2d_forward(y, x, w, View{}, window);
    else if (pass == backward_data) conv2d_backward_data(x, y, w, window);
    else conv2d_backward_weights(w, y, x, window);
  });
}

#if RINGTAPE_BENCH_ONEDNN
// 0 if oneDNN has no such algorithm. Its reorders are not counted.
double onednn_seconds(const Layer& l, int64_t batch, Pass pass, Peer peer) try {
  using namespace dnnl;
  using memory_desc = memory::desc;
  engine device(engine::kind::cpu, 0);
  stream queue(device);
  const int64_t pad = l.kernel / 2, out = (l.size + 2 * pad - l.kernel) / l.stride + 1;
  const auto tag = peer == direct_nhwc ? memory::format_tag::nhwc : memory::format_tag::any;
  const auto f32 = memory::data_type::f32;
  const memory_desc x({batch, l.c, l.size, l.size}, f32, tag), y({batch, l.k, out, out}, f32, tag);
  const memory_desc w({l.k, l.c, l.kernel, l.kernel}, f32, memory::format_tag::any);
  const memory::dims stride{l.stride, l.stride}, padding{pad, pad};
  const auto algorithm = peer == winograd ? algorithm::convolution_winograd : algorithm::convolution_direct;
  const convolution_forward::primitive_desc hint(
      {prop_kind::forward_training, algorithm, x, w, y, stride, padding, padding}, device);
  const auto measure = [&](const primitive& p, const std::vector<std::pair<int, memory_desc>>& operands) {
    std::unordered_map<int, memory> args;
    for (const auto& [arg, desc] : operands) {
      memory m(desc, device);
      std::fill_n(static_cast<float*>(m.get_data_handle()), desc.get_size() / sizeof(float), 0.01f);
      args.emplace(arg, m);
    }
    return seconds_of([&] {
      p.execute(queue, args);
      queue.wait();
    });
  };
  if (pass == forward || pass == prepared)
    return measure(
        convolution_forward(hint),
        {{DNNL_ARG_SRC, hint.src_desc()}, {DNNL_ARG_WEIGHTS, hint.weights_desc()}, {DNNL_ARG_DST, hint.dst_desc()}});
  if (pass == backward_data) {
    const convolution_backward_data::primitive_desc d({algorithm, x, w, y, stride, padding, padding}, device, hint);
    return measure(convolution_backward_data(d), {{DNNL_ARG_DIFF_SRC, d.diff_src_desc()},
                                                  {DNNL_ARG_WEIGHTS, d.weights_desc()},
                                                  {DNNL_ARG_DIFF_DST, d.diff_dst_desc()}});
  }
  const convolution_backward_weights::primitive_desc d({algorithm, x, w, y, stride, padding, padding}, device, hint);
  return measure(convolution_backward_weights(d), {{DNNL_ARG_SRC, d.src_desc()},
                                                   {DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc()},
                                                   {DNNL_ARG_DIFF_DST, d.diff_dst_desc()}});
} catch (const dnnl::error&) {
  return 0;
}
constexpr int kPeerCount = 4;
#else
double onednn_seconds(const Layer&, int64_t, Pass, Peer) { return 0; }
constexpr int kPeerCount = 1;
#endif

}  // namespace
}  // namespace ringtape

int main(int argc, char** argv) {
  using namespace ringtape;
  const int64_t batch = argc > 1 ? std::atoi(argv[1]) : 128;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  const std::string filter = argc > 3 ? argv[3] : "";
  const DType dtype = parse_dtype(argc > 4 ? argv[4] : "f32");
  omp_set_num_threads(threads());
  std::printf("batch %d, %d threads, %s, f32 peak %.0f GFLOP/s; median of %d alternating rounds, GFLOP/s\n", int(batch),
              threads(), std::string(name_of(cpu_isa())).c_str(), bench::apart(bench::peak_flops) / 1e9, rounds);
  std::printf("%-20s %-8s", "layer", "pass");
  for (int peer = 0; peer < kPeerCount; ++peer) std::printf(" %9s", kPeers[peer]);
  std::printf("   / nhwc\n");
  double total[4] = {};
  for (const Layer& l : kLayers)
    for (const Pass pass : {forward, backward_data, backward_weights, prepared}) {
      if (l.name.find(filter) == std::string::npos || (l.c == 3 && pass == backward_data)) continue;
      std::vector<double> seconds[4];
      for (int round = 0; round < rounds; ++round)
        for (int peer = 0; peer < kPeerCount; ++peer)
          seconds[peer].push_back(bench::apart([&] {
            return peer == ours ? our_seconds(l, batch, pass, dtype) : onednn_seconds(l, batch, pass, Peer(peer));
          }));
      const int64_t out = (l.size + 2 * (l.kernel / 2) - l.kernel) / l.stride + 1;
      const double flops = 2.0 * double(batch * out * out * l.k * l.c * l.kernel * l.kernel);
      std::printf("%-20s %-8s", l.name.c_str(), kPasses[pass]);
      for (int peer = 0; peer < kPeerCount; ++peer) {
        const double median = bench::median(seconds[peer]);
        std::printf(" %9.1f", median > 0 ? flops / median / 1e9 : 0.0);
        if (pass != prepared) total[peer] += l.count * (median > 0 ? median : bench::median(seconds[direct_any]));
      }
      if (kPeerCount > 1) std::printf("   %.2f", bench::median(seconds[direct_nhwc]) / bench::median(seconds[ours]));
      std::printf("\n");
      std::fflush(stdout);
    }
  if (total[ours] == 0) return 0;
  std::printf("all layers of ResNet-18, ms:  ");
  for (int peer = 0; peer < kPeerCount; ++peer) std::printf(" %9.0f", 1e3 * total[peer]);
  std::printf("   %.2f\n", total[direct_nhwc] / total[ours]);
}
