#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <string_view>

// GPUs as CUDA sees them. An index is that of Device{DeviceType::cuda, index}.
namespace ringtape::cuda {

struct Properties {
  std::string name;                // "NVIDIA H200"
  int major = 0, minor = 0;        // compute capability
  int multiprocessors = 0;
  int l2_bytes = 0;
  int shared_bytes_per_block = 0;  // at most, with the opt-in above 48 KiB
  size_t memory_bytes = 0;
};

int device_count();                        // 0 without a driver or a device: never throws
std::string unavailable_reason();          // why device_count() is 0: what CUDA said and what to do; empty otherwise
const Properties& properties(int index);   // read once. Throws DeviceError for a GPU that this build has no kernels for
void use(int index);                       // makes it the calling thread's current device; free if it is

// Two streams a device, made on first use: kernels and what they need run on the first, in order; transfers that may
// overlap them on the second.
cudaStream_t compute_stream(int index);
cudaStream_t copy_stream(int index);

// While it lives, what the calling thread asks of the device goes to `stream`: compute_stream(index) is that one.
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

void synchronize(int index);               // waits for all work on the device; throws what failed there

// Whether kernels built for CMAKE_CUDA_ARCHITECTURES ("80;90", "90-real", "90a") run on a GPU of compute capability
// major.minor: machine code does within its major version from its minor version on, PTX on all that came later.
bool runs_on(std::string_view architectures, int major, int minor);

// "softmax_forward<float>" out of "const char* kernel_name() [with auto kernel = {anonymous}::softmax_forward<float>]".
std::string readable_kernel_name(std::string_view pretty_function);

}  // namespace ringtape::cuda
