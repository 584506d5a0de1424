#include "core/cuda/graph.h"

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/runtime.h"

namespace ringtape::cuda {
namespace {

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { RT_GPU_CHECK(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  ~Stream() {
    if (cudaStreamDestroy(handle) != cudaSuccess) cudaGetLastError();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

// What the calling thread puts on the compute stream goes to one of its own: that of other threads is not recorded.
class Recording {
 public:
  explicit Recording(int index) : here_(index, stream_.handle) {
    RT_GPU_CHECK(cudaStreamBeginCapture(stream_.handle, cudaStreamCaptureModeThreadLocal));
  }
  ~Recording() {
    if (!ended_ && cudaStreamEndCapture(stream_.handle, &graph_) != cudaSuccess) cudaGetLastError();
    if (graph_) cudaGraphDestroy(graph_);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  cudaGraph_t end() {
    ended_ = true;
    RT_GPU_CHECK(cudaStreamEndCapture(stream_.handle, &graph_));
    return graph_;
  }

 private:
  const Stream stream_;
  const OnStream here_;
  bool ended_ = false;
  cudaGraph_t graph_ = nullptr;
};

}  // namespace

Graph::Graph(int index, const std::function<void()>& body) : index_(index), memory_(index), live_(index) {
  RT_CHECK_AS(DeviceError, !recording(index), "a graph is being recorded on cuda:", index, " already");
  use(index);
  Recording work(index);
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
