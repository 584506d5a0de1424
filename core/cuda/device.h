#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <string_view>

// GPUs as CUDA numbers them. `index` is the one of Device{DeviceType::cuda, index}.
namespace ringtape::cuda {

struct Properties {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int l2_bytes = 0;
  int shared_bytes_per_block = 0;  // maximum, with the opt-in above 48 KiB
  size_t memory_bytes = 0;
};

int device_count();                          // 0 without a driver or a device; never throws
std::string unavailable_reason();            // why device_count() is 0: CUDA's message and what to do; else empty
const Properties& properties(int index);     // read once. Throws DeviceError for a GPU without kernels in this build
void use(int index);                         // makes it the thread's current device; no call if it already is
void use_in_destructor(int index) noexcept;  // the same; an error is left to the calls that follow

// Two streams per device, made on first use. Kernels and their memory operations run on the compute stream, in order.
// Transfers that may overlap them run on the copy stream.
cudaStream_t compute_stream(int index);
cudaStream_t copy_stream(int index);

// While it lives, compute_stream(index) returns `stream` in the calling thread.
class OnStream {
 public:
  OnStream(int index, cudaStream_t stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  int before_index_;
  cudaStream_t before_;
};

void synchronize(int index);  // waits for all work on the device; throws its errors

// Whether kernels built for CMAKE_CUDA_ARCHITECTURES ("80;90", "90-real", "90a") run on a GPU of compute capability
// major.minor. Machine code runs on the same major version from its minor version on; PTX runs on all later GPUs.
bool runs_on(std::string_view architectures, int major, int minor);

// "softmax_forward<float>" from "const char* kernel_name() [with auto kernel = {anonymous}::softmax_forward<float>]".
std::string readable_kernel_name(std::string_view pretty_function);

}  // namespace ringtape::cuda
