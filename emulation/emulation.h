#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

// The interface for tests to the emulated GPU, on which a build with RINGTAPE_CUDA=EMULATED executes every kernel on
// the CPU.
namespace ringtape::emulation {

// The order of the blocks of a grid and the threads of a block. Threads switch only at barriers and warp operations.
// Also RINGTAPE_EMULATION_SCHEDULE=forward|reverse|random|random:SEED.
enum class Schedule : uint8_t { forward, reverse, random };
const char* name_of(Schedule schedule);
void set_schedule(Schedule schedule, uint64_t seed = 1);
Schedule schedule();

// The machine that the CUDA runtime reports. Without RINGTAPE_EMULATED_GPU ("devices=1 memory=256M sm=90", each part is
// optional; "devices=0": a driver without a GPU; "defect=products": short_products) there is no driver. Takes effect
// for later calls.
struct Gpu {
  bool driver = true;
  int devices = 1;
  size_t memory_bytes = size_t{1} << 30;
  int major = 9, minor = 0;
  bool short_products = false;     // cuBLASLt leaves out the last term of each sum, for tests of checks
  bool other_descriptors = false;  // wgmma takes operands along their outer index for those along the depth, likewise
};
void set_gpu(const Gpu& gpu);
const Gpu& gpu();

// The errors found since the last clear, one line each: kernel, block, thread, kind and place. The kernel that caused
// one is aborted or continues with poisoned values; the stream's next synchronisation returns cudaErrorLaunchFailure.
struct Report {
  std::string kind;  // "race", "out-of-bounds", ...
  std::string text;  // the whole line
};
const std::vector<Report>& reports();
void clear_reports();

// Every kernel for which launch<>() is compiled, executed or not.
struct KernelRun {
  std::string name;           // "softmax_forward<float>"
  uint64_t launches[3] = {};  // by schedule
};
std::vector<KernelRun> kernels();

// How often each function of the runtime was called, by name ("cudaMallocFromPoolAsync"); launches of kernels are
// "enqueue_kernel", products of cuBLASLt "cublasLtMatmul".
std::map<std::string, uint64_t> calls();

size_t queued();  // operations on streams that have not been waited for

bool checked();  // whether every access is checked: the kernels were compiled for the checker

}  // namespace ringtape::emulation
