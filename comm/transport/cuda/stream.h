#pragma once
#include "comm/transport.h"
#include "core/cuda/device.h"
#include "core/cuda/event.h"

// Common parts of the transports between GPUs.
namespace ringtape::comm::cuda {

using ringtape::cuda::Event;
using ringtape::cuda::OnStream;

// A stream that is not ordered with any other stream.
class Stream {
 public:
  explicit Stream(int index);
  ~Stream();  // waits for it
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  const int index_;
  cudaStream_t stream_ = nullptr;
};

// The current end of a stream of device `index`.
std::shared_ptr<Event> point_of(int index, cudaStream_t stream);

// A transport with its own stream for arithmetic, copies and scratch memory.
class GpuTransport : public Transport {
 public:
  GpuTransport(Context context, Device device);
  ~GpuTransport() override;
  Device device() const override { return device_; }

  void combine(void* y, std::span<const void* const> sources, int64_t count, double factor) override;
  void copy(void* y, const void* x, size_t bytes) override;
  void* scratch(size_t bytes) override;

  std::shared_ptr<StreamPoint> asked() const override;
  void follow(const StreamPoint& moment) override;
  std::shared_ptr<StreamPoint> reached() override;

 protected:
  void opened() override;
  int index() const { return device_.index; }

  const Device device_;
  const Stream stream_;

 private:
  bool follows_ = false;  // since the last begin()
  std::shared_ptr<void> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace ringtape::comm::cuda
