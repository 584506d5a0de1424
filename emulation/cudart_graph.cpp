// The stand-in for libcudart: capture of streams, and graphs.
#include <algorithm>

#include "emulation/cudart.h"

using namespace ringtape::emulation;

struct CUgraph_st {
  std::shared_ptr<Capture> recorded;
};
struct CUgraphExec_st {
  std::shared_ptr<Capture> recorded;
};

namespace ringtape::emulation {
namespace {

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto& all = *new std::vector<std::shared_ptr<Capture>>;
  return all;
}
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// Whether all recorded work precedes the last node of the stream in which the capture began.
bool joined(const Capture& capture) {
  std::vector<bool> before(capture.nodes.size());
  std::vector<size_t> open = capture.origin->frontier;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (before[node]) continue;
    before[node] = true;
    open.insert(open.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
  }
  return std::all_of(before.begin(), before.end(), [](bool b) { return b; });
}

// Runs the nodes one by one, each after its dependencies. With reverse and random order of streams the newest node that
// can run comes first.
void run_graph(const Capture& capture) {
  const size_t n = capture.nodes.size();
  std::vector<bool> done(n);
  for (size_t count = 0; count < n; ++count) {
    size_t chosen = n;
    for (size_t i = 0; i < n && (chosen == n || schedule() != Schedule::forward); ++i) {
      const auto& after = capture.nodes[i].after;
      if (!done[i] && std::all_of(after.begin(), after.end(), [&](size_t a) { return done[a]; })) chosen = i;
    }
    if (capture.nodes[chosen].run) capture.nodes[chosen].run();
    done[chosen] = true;
  }
}

void leave(Capture& capture) {
  capture.ended = true;
  std::erase_if(captures(), [&](const auto& c) { return c.get() == &capture; });
}

}  // namespace

cudaError_t refused_while_capturing() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t status = cudaSuccess;
  for (const auto& c : captures()) {
    const bool mine = c->thread == std::this_thread::get_id() && c->mode != cudaStreamCaptureModeRelaxed;
    const bool everyones = c->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (!mine && !everyones) continue;
    c->invalid = true;
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}

cudaError_t refused_on(CUstream_st& stream) {
  if (!stream.capture) return cudaSuccess;
  stream.capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

bool capturing(int device) {
  return std::any_of(captures().begin(), captures().end(), [&](const auto& c) { return c->origin->device == device; });
}
void invalidate_captures_of(int device) {
  for (const auto& c : captures())
    if (c->origin->device == device) c->invalid = true;
}

}  // namespace ringtape::emulation

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return api_call([&] {
    const auto stream = handle && handle != cudaStreamLegacy ? stream_of(handle) : nullptr;
    if (!stream) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->origin = stream.get();
    capture->thread = std::this_thread::get_id();
    capture->mode = mode;
    captures().push_back(capture);
    stream->capture = capture;
    stream->frontier.clear();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return api_call([&] {
    *graph = nullptr;
    const auto stream = stream_of(handle);
    if (!stream || !stream->capture) return cudaErrorIllegalState;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture->origin != stream.get()) return cudaErrorStreamCaptureUnmatched;
    const bool other_thread = capture->thread != std::this_thread::get_id();
    if (other_thread && capture->mode != cudaStreamCaptureModeRelaxed) return cudaErrorStreamCaptureWrongThread;
    const bool whole = joined(*capture);
    leave(*capture);
    release_streams(*capture);
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!whole) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st{capture};
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return api_call([&] {
    const auto stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *status = !stream->capture           ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return api_call([&] {
    if (!graph || !count || nodes) return cudaErrorInvalidValue;  // their number alone
    *count = graph->recorded->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  return api_call([&] {
    if (!graph) return cudaErrorInvalidValue;
    *out = new CUgraphExec_st{graph->recorded};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
  return api_call([&] {
    const auto stream = stream_of(handle);
    if (!graph) return cudaErrorInvalidValue;
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return cudaErrorNotSupported;
    put(*stream, [recorded = graph->recorded] { run_graph(*recorded); });
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api_call([&] {
    delete graph;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return api_call([&] {
    delete graph;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGraphMemTrim(int) {
  return api_call([] { return cudaSuccess; });
}

}  // extern "C"
