// What the stand-in for NCCL refuses, or waits for as NCCL does.
#include <string>
#include <utility>
#include <vector>

#include "autograd/create.h"
#include "comm/transport/gpu.h"
#include "core/cuda/device.h"
#include "tests/support/cuda_support.h"
#include "tests/support/nccl_support.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"

namespace ringtape::comm {
namespace {

using ringtape::test::values;

cudaStream_t stream_of(int index) { return ringtape::cuda::compute_stream(index); }
Device gpu(int index) { return {DeviceType::cuda, index}; }

class NcclStandIn : public ringtape::test::EmulatedNccl {};

// Two communicators of one clique, both used by this thread.
class NcclStandInCalls : public NcclStandIn {
 protected:
  void SetUp() override {
    NcclStandIn::SetUp();
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int r = 0; r < 2; ++r) ASSERT_EQ(init(r), ncclInProgress);
    for (int r = 0; r < 2; ++r) ASSERT_EQ(settle(r), ncclSuccess);
  }
  void TearDown() override {
    for (const ncclComm_t c : comm)
      if (c) {
        EXPECT_EQ(ncclCommAbort(c), ncclSuccess);
      }
    NcclStandIn::TearDown();
  }
  ncclResult_t init(int r) {
    ringtape::cuda::use(r);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommInitRankConfig(&comm[r], 2, id, r, &config);
  }
  ncclResult_t poll(int r) {
    ncclResult_t out = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comm[r], &out), ncclSuccess);
    return out;
  }
  ncclResult_t settle(int r) {
    for (int i = 0; i < 100; ++i)
      if (const ncclResult_t now = poll(r); now != ncclInProgress) return now;
    return ncclInProgress;
  }
  ncclResult_t reduce(int r, const Tensor& x, const Tensor& y, size_t count = 4) {
    return ncclAllReduce(View(x).data, View(y).data, count, ncclFloat32, ncclSum, comm[r], stream_of(r));
  }
  Tensor ones(int r, int64_t count = 4) { return full({count}, 1, DType::f32, gpu(r)); }
  std::string refusal() { return ncclGetLastError(nullptr); }

  ncclUniqueId id;
  ncclComm_t comm[2] = {};
};

TEST_F(NcclStandInCalls, RefusesWrongArguments) {
  const Tensor x = ones(0), y = ones(0), other = ones(1), host = full({4}, 1);
  EXPECT_EQ(reduce(0, Tensor(), y), ncclInvalidArgument);
  EXPECT_EQ(refusal(), "sendbuff is NULL");
  EXPECT_EQ(reduce(0, x, other), ncclInvalidArgument);
  EXPECT_EQ(refusal(), "recvbuff: 16 bytes are not in one buffer of cuda:0");
  EXPECT_EQ(reduce(0, host, y), ncclInvalidArgument);
  EXPECT_EQ(reduce(0, x, y, 100000), ncclInvalidArgument);
  const Tensor both = ones(0, 6);
  EXPECT_EQ(reduce(0, both.window({4}, {1}, 0), both.window({4}, {1}, 2)), ncclInvalidArgument);
  EXPECT_EQ(refusal(), "sendbuff and recvbuff overlap");
  const auto stream = stream_of(0);
  void* const p = View(y).data;
  EXPECT_EQ(ncclReduceScatter(p, p, 2, ncclFloat32, ncclSum, comm[1], stream), ncclUnhandledCudaError);
  EXPECT_EQ(ncclBroadcast(p, p, 4, ncclFloat32, 2, comm[0], stream), ncclInvalidArgument);
  EXPECT_EQ(ncclSend(p, 4, ncclFloat32, -1, comm[0], stream), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(reduce(0, Tensor(), Tensor(), 0), ncclInProgress);  // nothing to do
}

TEST_F(NcclStandInCalls, AGroupOfWhichOneCallIsWrongDoesNothing) {
  const Tensor x = ones(0);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(reduce(0, x, x), ncclSuccess);
  EXPECT_EQ(reduce(0, Tensor(), x), ncclInvalidArgument);
  EXPECT_EQ(ncclCommFinalize(comm[0]), ncclInvalidUsage);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(poll(0), ncclSuccess);
}

TEST_F(NcclStandInCalls, WantsToBeAskedUntilItIsReady) {
  const Tensor x = ones(0), y = ones(1);
  EXPECT_EQ(reduce(0, x, x), ncclInProgress);
  EXPECT_EQ(reduce(0, x, x), ncclInvalidArgument);
  EXPECT_EQ(refusal(), "the communicator is still in progress");
  EXPECT_EQ(settle(0), ncclSuccess);
  EXPECT_EQ(reduce(1, y, y), ncclInProgress);
  EXPECT_EQ(settle(1), ncclSuccess);
  EXPECT_EQ(values(y), std::vector<double>(4, 2));
  EXPECT_EQ(values(x), std::vector<double>(4, 2));
  EXPECT_EQ(ncclCommDestroy(comm[0]), ncclInvalidUsage);
  EXPECT_EQ(ncclCommFinalize(comm[0]), ncclInProgress);
  EXPECT_EQ(settle(0), ncclInProgress);  // the other has not finalised
  EXPECT_EQ(reduce(0, x, x), ncclInvalidUsage);
  EXPECT_EQ(ncclCommFinalize(comm[1]), ncclInProgress);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(settle(r), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm[r]), ncclSuccess);
    EXPECT_EQ(reduce(r, x, x), ncclInvalidArgument);  // gone
    comm[r] = nullptr;
  }
}

TEST_F(NcclStandInCalls, ASendWithoutItsRecvIsNotDoneBeforeTheAbort) {
  const Tensor x = ones(0), y = full({4}, 7, DType::f32, gpu(1));
  EXPECT_EQ(ncclSend(View(x).data, 4, ncclFloat32, 1, comm[0], stream_of(0)), ncclInProgress);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(cudaStreamQuery(stream_of(0)), cudaErrorNotReady);
  EXPECT_EQ(ncclCommAbort(std::exchange(comm[0], nullptr)), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_of(0)), cudaSuccess);
  EXPECT_EQ(ncclRecv(View(y).data, 4, ncclFloat32, 0, comm[1], stream_of(1)), ncclInProgress);
  EXPECT_EQ(cudaStreamQuery(stream_of(1)), cudaErrorNotReady);
  EXPECT_EQ(ncclCommAbort(std::exchange(comm[1], nullptr)), ncclSuccess);
  EXPECT_EQ(values(y), std::vector<double>(4, 7));
}

// Both ranks send before they receive, in groups of their own: NCCL may wait for ever.
TEST_F(NcclStandInCalls, MessagesInBothDirectionsNeedOneGroup) {
  const auto exchange = [&](bool grouped) {
    Tensors x, y;
    for (int r = 0; r < 2; ++r) {
      x.push_back(full({4}, r, DType::f32, gpu(r)));
      y.push_back(full({4}, 7, DType::f32, gpu(r)));
      const auto stream = stream_of(r);
      EXPECT_EQ(grouped ? ncclGroupStart() : ncclSuccess, ncclSuccess);
      EXPECT_LE(ncclSend(View(x[size_t(r)]).data, 4, ncclFloat32, 1 - r, comm[r], stream), ncclInProgress);
      EXPECT_EQ(grouped ? ncclSuccess : settle(r), ncclSuccess);
      EXPECT_LE(ncclRecv(View(y[size_t(r)]).data, 4, ncclFloat32, 1 - r, comm[r], stream), ncclInProgress);
      EXPECT_EQ(grouped ? ncclGroupEnd() : ncclInProgress, ncclInProgress);
      EXPECT_EQ(settle(r), ncclSuccess);
    }
    for (int i = 0; i < 50; ++i) cudaStreamQuery(stream_of(0));
    const bool done = cudaStreamQuery(stream_of(0)) == cudaSuccess;
    for (ncclComm_t& c : comm)
      if (!done) {
        EXPECT_EQ(ncclCommAbort(std::exchange(c, nullptr)), ncclSuccess);
      }
    for (int r = 0; r < 2; ++r) EXPECT_EQ(values(y[size_t(r)]), std::vector<double>(4, done ? 1 - r : 7));
    return done;
  };
  EXPECT_TRUE(exchange(true));
  EXPECT_FALSE(exchange(false));
}

TEST_F(NcclStandIn, EveryRankNeedsItsOwnGpu) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm[2] = {};
  ringtape::cuda::use(0);
  EXPECT_EQ(ncclCommInitRankConfig(&comm[0], 2, id, 0, &config), ncclInvalidArgument);  // it would block
  config.blocking = 0;
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ncclCommInitRankConfig(&comm[r], 2, id, r, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm[0], &state), ncclSuccess);
  EXPECT_EQ(state, ncclInvalidUsage);
  for (const ncclComm_t c : comm) EXPECT_EQ(ncclCommAbort(c), ncclSuccess);
  EXPECT_MENTIONS(test::run_threads(2, 1, Seconds(20), [](const Context& c) { nccl_transport(c, gpu(0)); }),
                  "ranks 0 and 1 have the same GPU, but NCCL needs one GPU per rank");
}

}  // namespace
}  // namespace ringtape::comm
