#include "core/cuda/inbox.h"

#include <cstdint>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/event.h"
#include "core/cuda/memory.h"
#include "core/cuda/pool.h"
#include "core/cuda/staging.h"
#include "core/runtime.h"

namespace ringtape::cuda {
namespace {

class Pinned : public HostBuffer {
 public:
  Pinned(size_t bytes, int index) : staging_(index, bytes) {}
  void* data() override { return staging_.data(); }
  Staging& staging() { return staging_; }

 private:
  Staging staging_;
};

class TwoPlaces : public Inbox {
 public:
  TwoPlaces(size_t bytes, int index)
      : index_(index), bytes_((bytes + 255) / 256 * 256), data_(allocate(2 * bytes_, index)) {
    for (Event& used : used_) used.record(compute_stream(index));  // by previous owners of the memory
  }
  ~TwoPlaces() override {
    deallocate(data_, 2 * bytes_, index_);
  }  // in order of the compute stream, which waits for every copy

  void* receive(HostBuffer& from, size_t bytes) override {
    RT_CHECK_AS(DeviceError, !recording(index_), "a copy from the host to cuda:", index_,
                " cannot be part of a recorded graph");
    RT_CHECK(bytes <= bytes_, bytes, " bytes do not fit into a buffer of ", bytes_);
    use(index_);
    const cudaStream_t copies = copy_stream(index_), compute = compute_stream(index_);
    used_[at_].record(compute);  // all work on the previous bytes has been launched by now
    at_ = 1 - at_;
    Staging& staging = static_cast<Pinned&>(from).staging();
    void* const to = static_cast<char*>(data_) + size_t(at_) * bytes_;
    used_[at_].wait_on(copies);
    RT_GPU_CHECK(cudaMemcpyAsync(to, staging.data(), bytes, cudaMemcpyHostToDevice, copies));
    staging.used_until_now(copies);
    staging.wait_on(compute);
    return to;
  }

 private:
  int index_;
  size_t bytes_;
  void* data_;
  Event used_[2] = {Event(index_), Event(index_)};  // the points after all work on each place
  int at_ = 0;
};

}  // namespace

std::shared_ptr<HostBuffer> host_buffer(size_t bytes, int index) { return std::make_shared<Pinned>(bytes, index); }
std::shared_ptr<Inbox> inbox(size_t bytes, int index) { return std::make_shared<TwoPlaces>(bytes, index); }

}  // namespace ringtape::cuda
