// Ranks on GPUs as users start them: the transports of train and bench collectives by name.
#include "core/runtime.h"
#include "tests/support/cuda_support.h"
#include "tests/support/jobs.h"

namespace ringtape {
namespace {

class CudaRanks : public test::JobTest {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    RT_NEEDS_CUDA();
  }
};

// 30 steps, summed in the order of the ranks.
const std::string kShort =
    "train --train-size 600 --test-size 20 --val-size 20 --batch-size 20 --hidden 8 --optimizer sgd --lr 0.01 "
    "--workers 0 --threads 1 --epochs 1 --deterministic ";
const std::string kTwo = kShort + "--gpu-ids 0,0 --devices 2 ";  // on one GPU: any machine with one can run them

TEST_F(CudaRanks, TrainOverIpc) {
  for (const std::string strategy : {"ddp", "zero1"}) {
    const std::string flags = kTwo + "--strategy " + strategy;
    ASSERT_EQ(run("ringtape " + flags + " --transport ipc --run " + strategy), 0) << log();
    ASSERT_EQ(run("ringtape launch -n 2 -- " + flags + " --run auto_" + strategy), 0) << log();
    EXPECT_MENTIONS(log(), "2 over ipc, ");
    EXPECT_TRUE(bytes(strategy) == bytes("auto_" + strategy));
  }
  EXPECT_TRUE(bytes("zero1") == bytes("ddp"));
  ASSERT_EQ(run("ringtape launch -n 2 -- " + kShort + "--strategy ddp2 --run ddp2"), 0) << log();
  EXPECT_TRUE(bytes("ddp2") == bytes("ddp"));
}

TEST_F(CudaRanks, TrainOnlyOverWhatFits) {
  const std::pair<const char*, const char*> cases[] = {
      {"--transport shm",
       "transport shm: between CPUs, but this rank is on cuda:0; choose another device or one of: "
       "auto, "},
      {"--transport p2p",
       "--transport p2p: between threads of one process, as in bench collectives and dp, but these "
       "ranks are processes; use ipc, nccl or auto"},
      {"--transport ncll", "unknown value 'ncll'; did you mean nccl?"},
  };
  for (const auto& [flags, cause] : cases) {
    EXPECT_EQ(run("ringtape " + kTwo + flags), 2) << log();
    EXPECT_MENTIONS(log(), cause);
  }
  EXPECT_EQ(run("ringtape launch -n 2 -- " + kTwo + "--transport p2p"), 2) << log();
  EXPECT_MENTIONS(log(), cases[1].second);
}

TEST_F(CudaRanks, BenchTransports) {
  for (const char* op : {"all_reduce", "reduce_scatter", "all_gather", "broadcast"})
    for (const char* transport : {"p2p", "ipc"}) {
      EXPECT_EQ(run(concat("ringtape bench collectives -b 1K -e 64K -f 64 --warmup 1 --iterations 2 --check --op ", op,
                           " --ranks 3 --transport ", transport)),
                0)
          << log();
      EXPECT_MENTIONS(log(), concat(" over ", transport, ", 3 ranks"));
      EXPECT_MENTIONS(log(), "# Out of bounds values : 0 OK");
    }
  EXPECT_EQ(run("ringtape launch -n 2 -- bench collectives --transport p2p"), 2) << log();
  EXPECT_MENTIONS(log(), "--transport p2p: runs in one process; start it without a launcher");
}

}  // namespace
}  // namespace ringtape
