// What is said of GPUs, kernels and tensors on them.
#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::message_of;

#if defined(RINGTAPE_EMULATION_BUILD)

TEST(CudaMessages, ADriverOrDeviceThatIsNotThere) {
  emulation::set_gpu({.driver = false});
  EXPECT_FALSE(available(kCuda));
  EXPECT_EQ(message_of<DeviceError>([] { Tensor({2}, DType::f32, kCuda); }),
            "no device cuda:0: the CUDA driver is missing or older than CUDA 13.0 needs (cudaErrorInsufficientDriver: "
            "this build "
            "emulates CUDA for tests, without a driver; -DRINGTAPE_CUDA=ON is for GPUs); install NVIDIA driver 580 or "
            "newer, or use "
            "--device cpu");
  emulation::set_gpu({.devices = 0});
  EXPECT_EQ(message_of<DeviceError>([] { Tensor({2}, DType::f32, kCuda); }),
            "no device cuda:0: the CUDA driver finds no GPU (cudaErrorNoDevice: no CUDA-capable device is detected); "
            "see what "
            "nvidia-smi and CUDA_VISIBLE_DEVICES say, or use --device cpu");
}

TEST(CudaMessages, AGpuThatTheBuildHasNoKernelsFor) {
  emulation::set_gpu({.devices = 8, .major = 7, .minor = 5});
  const std::string message = message_of<DeviceError>([] { Tensor({2}, DType::f32, {DeviceType::cuda, 7}); });
  EXPECT_EQ(message,
            "cuda:7 is emulated GPU (sm_75), but this build has kernels for sm_90 only; reconfigure with "
            "-DCMAKE_CUDA_ARCHITECTURES=75");
  emulation::set_gpu({.devices = 8, .major = 10, .minor = 0});
  EXPECT_NO_THROW(Tensor({2}, DType::f32, {DeviceType::cuda, 7}));
}

// As after a kernel's error, which the question for devices reports, too.
TEST(CudaMessages, ATensorCanBeFreedWhenCudaAnswersNoMore) {
  emulation::set_gpu({});
  Tensor x({2}, DType::f32, kCuda);
  emulation::set_gpu({.driver = false});
  EXPECT_TRUE(available(kCuda));  // it is not asked again
  x = {};                         // from a destructor nothing may be thrown
  emulation::set_gpu({});
}

#endif

TEST(CudaNames, ArchitecturesRunOnDevices) {
  using cuda::runs_on;
  EXPECT_TRUE(runs_on("90", 9, 0));
  EXPECT_TRUE(runs_on("90", 10, 3));  // by its PTX
  EXPECT_FALSE(runs_on("90", 8, 9));
  EXPECT_FALSE(runs_on("90-real", 10, 0));
  EXPECT_TRUE(runs_on("80-real", 8, 6));  // machine code, in its major version
  EXPECT_FALSE(runs_on("86-real", 8, 0));
  EXPECT_TRUE(runs_on("75-virtual", 9, 0));
  EXPECT_FALSE(runs_on("80;90-virtual", 7, 5));
  EXPECT_TRUE(runs_on("75-real;80;90-virtual", 7, 5));
  EXPECT_TRUE(runs_on("90a", 9, 0));
  EXPECT_FALSE(runs_on("90a", 10, 0));  // features that no other has
  EXPECT_TRUE(runs_on("100f", 10, 3));
  EXPECT_FALSE(runs_on("100f", 12, 0));
  EXPECT_TRUE(runs_on("", 7, 5));  // not known: nothing is refused
  EXPECT_TRUE(runs_on("native", 7, 5));
}

TEST(CudaNames, KernelNamesAreReadable) {
  const auto name = [](const std::string& kernel) {
    return cuda::readable_kernel_name("const char* ringtape::cuda::kernel_name() [" + kernel + "]");
  };
  EXPECT_EQ(name("with auto kernel = ringtape::{anonymous}::softmax_forward<float>"), "softmax_forward<float>");
  EXPECT_EQ(name("kernel = &ringtape::(anonymous namespace)::softmax_forward<float>"), "softmax_forward<float>");
  EXPECT_EQ(name("with auto kernel = ringtape::cuda::{anonymous}::rows<ringtape::bf16, int [4], 2>; std::string = x"),
            "rows<bf16, int [4], 2>");
  EXPECT_EQ(name("with auto kernel = ringtape::_GLOBAL__N__b723c2d9_7_rows_cu_ef8ce4bc::rows<float>"), "rows<float>");
  EXPECT_EQ(name("with auto kernel = (& ringtape::fill)"), "fill");
  EXPECT_EQ(cuda::readable_kernel_name("main"), "main");
}

TEST(CudaMessages, ATensorPrintsItsValues) {
  RT_NEEDS_CUDA();
  EXPECT_EQ(to(transpose(from_host(std::vector<float>{1, 2, 3, 4}, {2, 2})), kCuda).str(),
            "tensor([[1, 3],\n        [2, 4]], shape=(2, 2), f32, cuda:0)");
}

}  // namespace
}  // namespace ringtape
