#include "core/cuda/graph.h"

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/recording.h"
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
class StreamRecording : public Recording {
 public:
  StreamRecording(int index, std::vector<Graph::Part>& parts)
      : Recording({DeviceType::cuda, index}), here_(index, stream_.handle), parts_(parts) {
    begin();
  }
  ~StreamRecording() override {
    cudaGraph_t graph = nullptr;
    if (begun_ && cudaStreamEndCapture(stream_.handle, &graph) != cudaSuccess) cudaGetLastError();
    if (graph) cudaGraphDestroy(graph);
  }

  void then(std::function<void()> f) override {
    end();
    if (parts_.empty()) parts_.emplace_back();
    parts_.back().then.push_back(std::move(f));
    begin();
  }
  void end() {  // a part ends, if there is work since the last one
    cudaGraph_t graph = nullptr;
    begun_ = false;
    RT_GPU_CHECK(cudaStreamEndCapture(stream_.handle, &graph));
    const std::unique_ptr<CUgraph_st, cudaError_t (*)(cudaGraph_t)> ended(graph, cudaGraphDestroy);
    size_t nodes = 0;
    RT_GPU_CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    if (nodes == 0) return;
    cudaGraphExec_t made = nullptr;
    RT_GPU_CHECK(cudaGraphInstantiate(&made, graph, 0));
    parts_.emplace_back().graph.reset(made);
  }

 private:
  void begin() {
    RT_GPU_CHECK(cudaStreamBeginCapture(stream_.handle, cudaStreamCaptureModeThreadLocal));
    begun_ = true;
  }

  const Stream stream_;
  const OnStream here_;
  std::vector<Graph::Part>& parts_;
  bool begun_ = false;
};

}  // namespace

void Graph::Destroy::operator()(cudaGraphExec_t graph) const noexcept {
  if (cudaGraphExecDestroy(graph) != cudaSuccess) cudaGetLastError();
}

Graph::Graph(int index, const std::function<void()>& body) : index_(index), memory_(index), live_(index) {
  RT_CHECK_AS(DeviceError, !Recording::current(), "a graph is being recorded on cuda:", index, " already");
  use(index);
  StreamRecording work(index, parts_);
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
  work.end();
}

Graph::~Graph() {
  if (cudaStreamSynchronize(compute_stream(index_)) != cudaSuccess) cudaGetLastError();
}

void Graph::launch() {
  use(index_);
  live_.send();
  for (const Part& part : parts_) {
    if (part.graph) RT_GPU_CHECK(cudaGraphLaunch(part.graph.get(), compute_stream(index_)));
    for (const auto& f : part.then) f();
  }
}

std::shared_ptr<RecordedWork> record_work(const std::function<void()>& body, int index) {
  return std::make_shared<Graph>(index, body);
}

}  // namespace ringtape::cuda
