#include "core/cuda/graph.h"

#include <utility>

#include "core/cuda/check.h"
#include "core/cuda/device.h"

namespace ringtape::cuda {
namespace {

// Ends the recording in any case: a stream that is still recording would refuse all further work.
class Recording {
 public:
  explicit Recording(cudaStream_t stream) : stream_(stream) {
    RT_GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~Recording() {
    if (stream_ && cudaStreamEndCapture(stream_, &graph_) != cudaSuccess) cudaGetLastError();
    if (graph_) cudaGraphDestroy(graph_);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  cudaGraph_t end() {
    const cudaStream_t stream = std::exchange(stream_, nullptr);
    RT_GPU_CHECK(cudaStreamEndCapture(stream, &graph_));
    return graph_;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
};

}  // namespace

Graph::Graph(int index, const std::function<void()>& body) : index_(index), memory_(index), live_(index) {
  RT_CHECK_AS(DeviceError, !recording(index), "a graph is being recorded on cuda:", index, " already");
  use(index);
  Recording work(compute_stream(index));
  memory_.start_recording();
  live_.start_recording();
  struct Stop {
    GraphMemory& memory;
    LiveArguments& live;
    ~Stop() {
      live.stop_recording();
      memory.stop_recording();
    }
  } stop{memory_, live_};
  body();
  RT_GPU_CHECK(cudaGraphInstantiate(&graph_, work.end(), 0));
}

Graph::~Graph() {
  if (cudaStreamSynchronize(compute_stream(index_)) != cudaSuccess) cudaGetLastError();
  if (graph_ && cudaGraphExecDestroy(graph_) != cudaSuccess) cudaGetLastError();
}

void Graph::launch() {
  use(index_);
  live_.send();
  RT_GPU_CHECK(cudaGraphLaunch(graph_, compute_stream(index_)));
}

std::shared_ptr<RecordedWork> record_work(const std::function<void()>& body, int index) {
  return std::make_shared<Graph>(index, body);
}

}  // namespace ringtape::cuda
