// Which calls the transport over NCCL makes, and how it ends when one fails or a rank is missing.
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "autograd/create.h"
#include "comm/algorithm.h"
#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "core/cuda/device.h"
#include "tests/support/cuda_support.h"
#include "tests/support/nccl_support.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"

namespace ringtape::comm {
namespace {

using emulation::NcclCall;
using emulation::NcclKind;
using ringtape::test::values;

Device gpu(int index) { return {DeviceType::cuda, index}; }

class NcclTransport : public ringtape::test::EmulatedNccl {};

// Runs f(group) on n ranks over NCCL. Returns why they failed, or nothing.
template <class F> std::string on_groups(int n, F&& f, Seconds timeout = Seconds(20)) {
  return test::run_threads(n, 1, timeout, [&](const Context& context) {
    ProcessGroup group(nccl_transport(context, gpu(context.rank)));
    f(group);
  });
}
Tensor ones(const ProcessGroup& group, int64_t count) {
  return full({count}, 1, DType::f32, group.transport().device());
}

// The calls of rank 1 of three while f runs.
template <class F> std::vector<NcclCall> calls_of(F&& f) {
  emulation::take_nccl_calls();
  EXPECT_EQ(on_groups(3, f), "");
  std::vector<NcclCall> calls = emulation::take_nccl_calls();
  std::erase_if(calls, [](const NcclCall& c) { return c.rank != 1; });
  return calls;
}

TEST_F(NcclTransport, EqualPartsAreOneCall) {
  const auto calls = calls_of([](ProcessGroup& group) {
    const Tensor x = ones(group, 4), all = ones(group, 12);
    group.all_reduce(x, ReduceOp::avg).wait();
    group.reduce_scatter(x, all, ReduceOp::max).wait();
    group.all_gather(all, x).wait();
    group.broadcast(x, 2).wait();
    group.reduce(group.rank() == 1 ? full({4}, 0, DType::f32, x.device()) : Tensor(), x, 1, ReduceOp::product).wait();
  });
  const NcclKind kinds[] = {NcclKind::all_reduce, NcclKind::reduce_scatter, NcclKind::all_gather, NcclKind::broadcast,
                            NcclKind::reduce};
  ASSERT_EQ(calls.size(), std::size(kinds));
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(int(calls[i].kind), int(kinds[i]));
    EXPECT_EQ(calls[i].count, 4u);
    EXPECT_EQ(calls[i].type, ncclFloat32);
  }
  EXPECT_EQ(calls[0].op, ncclAvg);
  EXPECT_EQ(calls[1].op, ncclMax);
  EXPECT_EQ(calls[3].root, 2);
  EXPECT_EQ(calls[4].op, ncclProd);
  EXPECT_EQ(calls[4].root, 1);
}

TEST_F(NcclTransport, DifferentPartsAreOneGroup) {
  const auto cuts = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{0, 5, 5, 12});
  const auto calls = calls_of([&](ProcessGroup& group) {
    const Tensor all = ones(group, 12);
    group.reduce_scatter(all, cuts).wait();
    group.all_gather(all, cuts).wait();
  });
  ASSERT_EQ(calls.size(), 4u);  // the empty part is nobody's
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(int(calls[i].kind), int(i < 2 ? NcclKind::reduce : NcclKind::broadcast));
    EXPECT_EQ(calls[i].root, i % 2 ? 2 : 0);
    EXPECT_EQ(calls[i].count, i % 2 ? 7u : 5u);
    EXPECT_EQ(calls[i].group, calls[i / 2 * 2].group);
  }
  EXPECT_NE(calls[0].group, calls[2].group);
}

// All messages that are under way together are one group, and are sent once.
TEST_F(NcclTransport, MessagesAreOneGroup) {
  const auto calls = calls_of([](ProcessGroup& group) {
    const Tensor x = ones(group, 6), y = ones(group, 6);
    group.all_to_all(y, x).wait();
    group.gather(group.rank() == 1 ? y : Tensor(), ones(group, 2), 1).wait();
    group.scatter(ones(group, 2), group.rank() == 0 ? x : Tensor(), 0).wait();
  });
  ASSERT_EQ(calls.size(), 4u + 2u + 1u);
  for (const NcclCall& c : calls) EXPECT_EQ(c.bytes(), 8u);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(calls[i].group, calls[0].group);
  EXPECT_EQ(calls[5].group, calls[4].group);
  EXPECT_EQ(int(calls[4].kind), int(NcclKind::recv));
  EXPECT_EQ(int(calls[6].kind), int(NcclKind::recv));
  EXPECT_EQ(calls[6].root, 0);
}

TEST_F(NcclTransport, CommunicatorsAreDestroyedAndNotAborted) {
  const auto count = [](const char* name) { return emulation::calls()[name]; };
  const uint64_t destroyed = count("ncclCommDestroy"), aborted = count("ncclCommAbort");
  EXPECT_SILENT(on_groups(3, [](ProcessGroup& group) {
    group.all_reduce(ones(group, 4)).wait();
    group.all_reduce(ones(group, 4));  // left for the destructor
    if (group.rank() == 1) std::this_thread::sleep_for(Seconds(0.02));
  }));
  EXPECT_EQ(count("ncclCommDestroy"), destroyed + 3);
  EXPECT_EQ(count("ncclCommAbort"), aborted);
}

TEST_F(NcclTransport, AnErrorOfEveryFunctionEndsAllRanks) {
  const auto cuts = std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{0, 5, 12});
  const auto use_all = [&](ProcessGroup& group) {
    const Tensor all = ones(group, 12), part = ones(group, 6);
    group.all_reduce(all).wait();
    group.reduce_scatter(part, all).wait();
    group.all_gather(all, part).wait();
    group.broadcast(all, 0).wait();
    group.reduce(group.rank() == 0 ? ones(group, 12) : Tensor(), all, 0).wait();
    group.reduce_scatter(all, cuts).wait();
    group.all_gather(all, cuts).wait();
    group.all_to_all(all, ones(group, 12)).wait();
    group.barrier().wait();
  };
  for (const char* function :
       {"ncclCommInitRankConfig", "ncclGroupStart", "ncclGroupEnd", "ncclAllReduce", "ncclReduceScatter",
        "ncclAllGather", "ncclBroadcast", "ncclReduce", "ncclSend", "ncclRecv"}) {
    emulation::set_nccl_faults({.fails = function, .with = ncclSystemError});
    const std::string cause = on_groups(2, use_all);
    EXPECT_MENTIONS(cause, concat(function, "("));
    EXPECT_MENTIONS(cause, "failed: unhandled system error: as the test wants (");
    EXPECT_EQ(emulation::nccl_communicators(), 0u) << function;
    EXPECT_EQ(on_groups(2, use_all), "") << "after an error of " << function;
  }
}

// A thread whose group failed can use NCCL again.
TEST_F(NcclTransport, AFailedGroupIsClosed) {
  const auto messages = [](const Context& context) {
    const auto t = nccl_transport(context, gpu(0));
    const Tensor x = full({4}, 1, DType::u8, gpu(0)), y = full({4}, 2, DType::u8, gpu(0));
    t->begin({.kind = Collective::all_reduce, .dtype = DType::u8, .count = 4, .sequence = 1}, Deadline(Seconds(20)));
    t->exchange({send_to(0, View(x).data, 4), recv_from(0, View(y).data, 4)});
    t->reached()->wait();
    RT_CHECK(values(y) == std::vector<double>(4, 1), "no message came");
  };
  const auto context = [] { return Context{0, 1, memory_store(), std::make_shared<Failure>(), Seconds(20)}; };
  for (const char* function : {"ncclSend", "ncclRecv"}) {
    emulation::set_nccl_faults({.fails = function, .with = ncclSystemError});
    EXPECT_MENTIONS(ringtape::test::message_of<CommError>([&] { messages(context()); }), function);
    messages(context());
  }
}

// Each of these calls differs from the other rank's.
TEST_F(NcclTransport, DifferentCalls) {
  using Call = void (*)(ProcessGroup&);
  const std::pair<const char*, Call> cases[] = {
      {"count", [](ProcessGroup& g) { g.all_reduce(ones(g, 4 + g.rank())).wait(); }},
      {"op", [](ProcessGroup& g) { g.all_reduce(ones(g, 4), g.rank() ? ReduceOp::sum : ReduceOp::avg).wait(); }},
      {"root", [](ProcessGroup& g) { g.broadcast(ones(g, 4), g.rank()).wait(); }},
      {"kind", [](ProcessGroup& g) { g.rank() ? g.all_reduce(ones(g, 4)).wait() : g.broadcast(ones(g, 4), 0).wait(); }},
      {"dtype", [](ProcessGroup& g) {
         g.all_reduce(full({4}, 1, g.rank() ? DType::i32 : DType::f32, g.transport().device())).wait();
       }}};
  for (const auto& [what, call] : cases) EXPECT_MENTIONS(on_groups(2, call), "NCCL reports invalid usage in ") << what;
  emulation::set_nccl_faults({.mismatches_hang = true});
  const std::string named = on_groups(2, [](ProcessGroup& g) {
    g.all_reduce(ones(g, 4)).wait();
    g.all_reduce(ones(g, 4 + g.rank())).wait();
  });
  EXPECT_MENTIONS(named, "the ranks make different calls");
  EXPECT_MENTIONS(named, "all_reduce #2");
}

// A rank that stays, but does not call.
void stay(const ProcessGroup& group) {
  while (!group.transport().context().failure->raised()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_F(NcclTransport, AnAsynchronousErrorNamesTheOperation) {
  emulation::set_nccl_faults({.fails = "ncclBroadcast", .with = ncclRemoteError, .later = true});
  const std::string cause = on_groups(
      2,
      [](ProcessGroup& group) {
        group.all_reduce(ones(group, 4)).wait();
        if (group.rank() == 1) return stay(group);
        group.broadcast(ones(group, 4), 0).wait();
        values(ones(group, 4));
      },
      Seconds(3));
  EXPECT_MENTIONS(cause, "NCCL reports remote process exited or there was a network error in broadcast #2");
}

TEST_F(NcclTransport, AnAbsentRankEndsAtTheDeadline) {
  EXPECT_MENTIONS(on_groups(
                      3,
                      [](ProcessGroup& group) {
                        group.all_reduce(ones(group, 4)).wait();
                        if (group.rank() == 1) return stay(group);
                        group.all_reduce(ones(group, 4)).wait();
                        values(ones(group, 4));
                      },
                      Seconds(0.3)),
                  "waited 0.3 s for the other ranks in all_reduce #2 (sum, f32, 4 elements) over nccl");
  EXPECT_MENTIONS(
      on_groups(
          2, [](ProcessGroup& group) { group.rank() == 0 ? group.barrier().wait() : stay(group); }, Seconds(0.3)),
      "in barrier #1");
  EXPECT_MENTIONS(on_groups(
                      2,
                      [](ProcessGroup& group) {
                        if (group.rank() == 1) return stay(group);
                        group.scatter(ones(group, 2), ones(group, 4), 0).wait();  // sends, and nobody receives
                        values(ones(group, 4));
                      },
                      Seconds(0.3)),
                  "waited 0.3 s for the other ranks in scatter #1");
}

TEST_F(NcclTransport, ARankThatNeverComesEndsAtTheDeadline) {
  ::setenv("NCCL_HOSTID", "any", 1);  // without the comparison of GPUs, which waits for all
  const std::string cause = test::run_threads(2, 1, Seconds(0.3), [](const Context& context) {
    if (context.rank == 0) nccl_transport(context, gpu(0));
  });
  ::unsetenv("NCCL_HOSTID");
  EXPECT_EQ(cause, "rank 0: NCCL has not started a communicator within 0.3 s");
}

// The rank that leaves waits for none of the others, which would pass their deadline meanwhile.
TEST_F(NcclTransport, AFailureElsewhereEndsEveryRank) {
  EXPECT_EQ(on_groups(
                3,
                [](ProcessGroup& group) {
                  group.all_reduce(ones(group, 4)).wait();
                  if (group.rank() == 1) {
                    std::this_thread::sleep_for(Seconds(0.2));
                    throw CommError("rank 1 has had enough");
                  }
                  group.all_reduce(ones(group, 4)).wait();
                  values(ones(group, 4));  // the host waits for the stream
                },
                Seconds(3)),
            "rank 1 has had enough");
  for (int i = 0; i < 3; ++i) ringtape::cuda::synchronize(i);
  EXPECT_EQ(emulation::queued(), 0u);
}

TEST_F(NcclTransport, ADestructorDoesNotWaitForEver) {
  std::unique_ptr<Transport> kept;
  EXPECT_EQ(test::run_threads(2, 1, Seconds(0.3),
                              [&](const Context& context) {
                                auto t = nccl_transport(context, gpu(context.rank));
                                if (context.rank == 1) kept = std::move(t);
                              }),
            "");
  EXPECT_EQ(emulation::nccl_communicators(), 1u);
  kept.reset();
}

}  // namespace
}  // namespace ringtape::comm
