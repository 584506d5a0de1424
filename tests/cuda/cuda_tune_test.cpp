// `bench tune` as users start it: it checks and measures every block that can be fused, and keeps what it found.
#include <fstream>
#include <iterator>

#include "tests/support/cli_command.h"
#include "tests/support/cuda_support.h"
#include "train/io/json_reader.h"

namespace ringtape {
namespace {

class CudaTune : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    RT_NEEDS_CUDA();
  }
};

TEST_F(CudaTune, ChecksAndKeepsEveryBlock) {
  const std::string tune = "bench tune --width 32 --pixels 2 --batch-size 2 --precision bf16 ",
                    plans = (folder_ / "plans").string(),
                    variables = "RINGTAPE_EMULATED_GPU=devices=1 RINGTAPE_CONV_PLANS=" + plans;
  const CliResult json = run(tune + "--json", variables);
  ASSERT_EQ(json.code, 0) << json.err;
  const Json blocks = parse_json(json.out);
  EXPECT_EQ(blocks.size(), 7u);  // two in the first stage are alike, and then the second ones of a stage
  std::ifstream file(plans);
  const std::string kept((std::istreambuf_iterator<char>(file)), {});
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Json& b = blocks[i];
    EXPECT_TRUE(b["right"].get<bool>()) << i;
    EXPECT_GT(b["fused_us"].get<double>(), 0) << i;
    EXPECT_MENTIONS(kept, concat(", bf16, x ", b["x"].get<std::string>(), ", w ", b["w"].get<std::string>(),
                                 ", stride ", b["stride"].get<int64_t>(), '\t', b["used"].get<std::string>(), '\n'));
  }
}

TEST_F(CudaTune, SaysWhatItCannotMeasure) {
  const std::string variables = "RINGTAPE_EMULATED_GPU=devices=1 RINGTAPE_CONV_PLANS=" + (folder_ / "plans").string();
  EXPECT_MENTIONS(run("bench tune", "RINGTAPE_CONV_PLANS=off").err, "RINGTAPE_CONV_PLANS=off leaves no file");
  EXPECT_MENTIONS(run("bench tune", variables + " RINGTAPE_FUSED_CONV=1").err, "RINGTAPE_FUSED_CONV=1 decides");
  for (const std::string flags : {"--device cpu --width 32", "--model mlp"}) {
    const CliResult r = run("bench tune --pixels 2 --batch-size 2 --precision bf16 " + flags, variables);
    EXPECT_EQ(r.code, 2) << flags;
    EXPECT_MENTIONS(r.err, "bench tune: expected residual blocks that a GPU can fuse");
  }
}

}  // namespace
}  // namespace ringtape
