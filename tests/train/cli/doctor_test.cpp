// `ringtape doctor`: what it checks of GPUs, and what it says of one that computes something else.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/cli_command.h"
#include "tests/support/cuda_support.h"
#include "train/io/json.h"
#include "train/run/device_check.h"

namespace ringtape {
namespace {

TEST(DeviceCheck, ErrorsAreRelativeToTheNorm) {
  const Tensor expected = from_host(std::vector<float>{3, -4, 0, 0}, {2, 2});
  EXPECT_EQ(relative_error(expected, cast(expected, DType::f64)), 0);
  EXPECT_NEAR(relative_error(from_host(std::vector<float>{3, -4, 0, 0.5}, {2, 2}), expected), 0.1, 1e-9);
  EXPECT_TRUE(std::isnan(relative_error(from_host(std::vector<float>{3, -4, 0, NAN}, {2, 2}), expected)));
  EXPECT_EQ(test::message_of<ShapeError>([&] { relative_error(zeros({4}), expected); }), "expected (2, 2), came (4,)");
}

// As TF32 rounds operands: to 11 significant bits.
Tensor rounded_to_tf32(const Tensor& x) {
  const Tensor y = full(x.shape(), 0);
  for (int64_t i = 0; i < x.size(); ++i) {
    int exponent = 0;
    const float fraction = std::frexp(x.data<float>()[i], &exponent);
    y.data<float>()[i] = std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
  }
  return y;
}

TEST(DeviceCheck, TheBoundTellsRoundingFromWhatIsWrong) {
  constexpr int64_t n = 256;
  manual_seed(1);
  const Tensor x = rand({n, n}, -1, 1), w = rand({n, n}, -1, 1);
  const auto product = [](const Tensor& a, const Tensor& b) {
    return matmul(cast(a, DType::f64), cast(b, DType::f64));
  };
  const Tensor expected = product(x, w);
  EXPECT_LT(relative_error(matmul(x, w), expected), rounding_bound(DType::f32, n));
  EXPECT_GT(relative_error(product(rounded_to_tf32(x), rounded_to_tf32(w)), expected), rounding_bound(DType::f32, n));
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    EXPECT_LT(relative_error(cast(expected, dtype), expected), rounding_bound(dtype, n)) << name_of(dtype);
    const Tensor without_a_term = product(slice(x, 1, 0, n - 1), slice(w, 0, 0, n - 1));
    EXPECT_GT(relative_error(without_a_term, expected), rounding_bound(dtype, n)) << name_of(dtype);
  }
}

#if defined(RINGTAPE_EMULATION_BUILD)

class DoctorTest : public CliTest {};

const char* const kVersions = "CUDA 13.0, CUDA driver 13.0, cuBLASLt emulated, cuDNN own kernels, NCCL none";

TEST_F(DoctorTest, ChecksEveryGpuInEachDtype) {
  for (const int gpus : {1, 2}) {
    const CliResult r = run("doctor --json", concat("RINGTAPE_EMULATED_GPU=devices=", gpus));
    EXPECT_EQ(r.code, 0) << r.err;
    const Json report = parse_json(r.out), checks = report["checks"];
    std::vector<std::string> names;
    for (int i = 0; i < gpus; ++i)
      for (const char* what : {"copy", "kernel f32", "kernel bf16", "kernel f16", "product f64", "product f32",
                               "product bf16", "product f16", "convolution f32", "convolution bf16", "convolution f16",
                               "own product bf16", "own convolution bf16", "fused block bf16", "graph"})
        names.push_back(concat("cuda:", i, ' ', what));
    names.push_back("all-reduce");
    for (const std::string& name : names) {
      ASSERT_TRUE(checks.contains(name)) << name << r.out;
      EXPECT_TRUE(checks[name]["passed"].get<bool>()) << name;
    }
    EXPECT_MENTIONS(checks["all-reduce"]["result"].get<std::string>(),
                    concat("2 ranks on ", gpus, gpus == 1 ? " GPU," : " GPUs,"));
    EXPECT_EQ(report["libraries"]["NCCL"], "none");
  }
  const CliResult none = run("doctor", "RINGTAPE_EMULATED_GPU=");
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_MENTIONS(none.out, "install NVIDIA driver 580 or newer");
  EXPECT_EQ(none.out.find("all-reduce"), std::string::npos);
  const CliResult wanted = run("doctor --device cuda", "RINGTAPE_EMULATED_GPU=");
  EXPECT_EQ(wanted.code, 1);
  EXPECT_MENTIONS(wanted.err, "ringtape: error: cuda: no device cuda:0: the CUDA driver is missing");
}

TEST_F(DoctorTest, OneLineQuotesWhatIsWrong) {
  const CliResult r = run("doctor", "RINGTAPE_EMULATED_GPU=defect=products");
  EXPECT_EQ(r.code, 1);
  EXPECT_MENTIONS(r.out, "FAILED  cuda:0 product bf16 ");
  EXPECT_MENTIONS(r.out, " expected an error of at most 4.0e-03 of the norm, came 6.");
  EXPECT_MENTIONS(r.out, "ok      cuda:0 convolution f32");
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  EXPECT_TRUE(r.err.starts_with("ringtape: error: cuda:0 product f64: expected an error of at most ")) << r.err;
  EXPECT_MENTIONS(r.err, "; 4 checks failed; ringtape 0.");
  EXPECT_MENTIONS(r.err, concat("emulated GPU, sm_90, 1 GB, ", kVersions));
  // Our own kernel makes the products instead.
  EXPECT_EQ(run("doctor", "RINGTAPE_CUBLAS=0 RINGTAPE_EMULATED_GPU=defect=products").code, 0);
}

TEST_F(DoctorTest, AGpuThatCannotBeUsedIsOneLineToo) {
  const CliResult small = run("doctor --json", "RINGTAPE_EMULATED_GPU=memory=64K");
  EXPECT_EQ(small.code, 1);
  EXPECT_MENTIONS(small.err, "ringtape: error: cuda:0 copy: out of memory on cuda:0: asked for");
  EXPECT_FALSE(parse_json(small.out)["checks"]["all-reduce"]["passed"].get<bool>());
  EXPECT_MENTIONS(run("doctor", "RINGTAPE_EMULATED_GPU=sm=75").err, "this build has kernels for sm_90 only");
}

TEST_F(DoctorTest, TheBenchmarkSaysTheSameVersions) {
  const std::string bench = "bench step --hidden 8 --batch-size 2 --threads 1 --device cuda";
  const CliResult r = run(bench + " --json", "RINGTAPE_EMULATED_GPU=devices=1");
  ASSERT_EQ(r.code, 0) << r.err;
  const Json figures = parse_json(r.out);
  EXPECT_EQ(figures["gpu"], "emulated GPU, sm_90, 1 GB");
  EXPECT_EQ(figures["libraries"]["cuDNN"], "own kernels");
  EXPECT_MENTIONS(run(bench, "RINGTAPE_EMULATED_GPU=devices=1").out,
                  concat("on emulated GPU, sm_90, 1 GB, ", kVersions));
}

#endif

}  // namespace
}  // namespace ringtape
