#include "comm/transport/cuda/stream.h"

#include <cuda_runtime_api.h>

#include "comm/transport/gpu.h"
#include "core/cuda/check.h"
#include "core/runtime.h"

namespace ringtape::comm::cuda {

using namespace ringtape::cuda;

namespace {

class EventPoint : public StreamPoint {
 public:
  explicit EventPoint(int index) : index_(index), event_(point_of(index, compute_stream(index))) {}
  void wait() const override {
    use(index_);
    event_->wait_on(compute_stream(index_));
  }
  bool passed() const override { return event_->done(); }

 private:
  const int index_;
  const std::shared_ptr<Event> event_;
};

Device checked(Device device) {
  RT_CHECK_AS(DeviceError, device.type == DeviceType::cuda, "a transport between GPUs, on ", device);
  ringtape::runtime(device);  // throws if the device does not exist
  return device;
}

}  // namespace

std::string uuid_of(int index) {
  cudaDeviceProp properties{};
  RT_GPU_CHECK(cudaGetDeviceProperties(&properties, index));
  std::string out = "GPU-";
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    for (const int digit : {byte >> 4, byte & 15}) out += "0123456789abcdef"[digit];
    if (i == 3 || i == 5 || i == 7 || i == 9) out += '-';
  }
  return out;
}

Stream::Stream(int index) : index_(index) {
  use(index);
  RT_GPU_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}
Stream::~Stream() {
  use_in_destructor(index_);
  if (cudaStreamSynchronize(stream_) != cudaSuccess || cudaStreamDestroy(stream_) != cudaSuccess) cudaGetLastError();
}

std::shared_ptr<Event> point_of(int index, cudaStream_t stream) {
  auto event = std::make_shared<Event>(index);
  event->record(stream);
  return event;
}

GpuTransport::GpuTransport(Context context, Device device)
    : Transport(std::move(context)), device_(checked(device)), stream_(device.index) {}

GpuTransport::~GpuTransport() {
  const OnStream here(index(), stream_);
  scratch_.reset();
}

void GpuTransport::combine(void* y, std::span<const void* const> sources, int64_t count, double factor) {
  const OnStream here(index(), stream_);
  Transport::combine(y, sources, count, factor);
}

void GpuTransport::copy(void* y, const void* x, size_t bytes) {
  if (bytes == 0 || y == x) return;
  use(index());
  RT_GPU_CHECK(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDefault, stream_));  // x or y may be on another GPU
}

void* GpuTransport::scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    const OnStream here(index(), stream_);  // freed and allocated in its order
    scratch_.reset();
    scratch_ = Transport::allocate(bytes);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

std::shared_ptr<StreamPoint> GpuTransport::asked() const { return std::make_shared<EventPoint>(index()); }

void GpuTransport::follow(const StreamPoint& point) {
  const OnStream here(index(), stream_);
  point.wait();
  follows_ = true;
}

std::shared_ptr<StreamPoint> GpuTransport::reached() {
  const OnStream here(index(), stream_);
  return asked();
}

void GpuTransport::opened() {
  if (!follows_) follow(*asked());
  follows_ = false;
}

}  // namespace ringtape::comm::cuda
