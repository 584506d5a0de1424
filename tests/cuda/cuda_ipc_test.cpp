// Ranks that are processes with a GPU each, or one for several. Their parent asks nothing
// of CUDA, which does not survive a fork.
#include <csignal>
#include <cstdlib>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/algorithm.h"
#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "comm/transport/transports.h"
#include "core/runtime.h"
#include "tests/support/cuda_support.h"
#include "tests/support/gpu_ranks.h"
#include "tests/support/process_ranks.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"
#include "train/io/file.h"

namespace ringtape::comm {
namespace {

using ringtape::test::Ended;
using ringtape::test::kCuda;
using ringtape::test::values;

bool has_gpu() {
  static const bool has = [] {
    const auto ends = ringtape::test::run_processes(
        1, Seconds(30), [](const Context&) { RT_CHECK(available(kCuda), "no CUDA device"); });
    return ends[0].status == 0;
  }();
  return has;
}

// Runs f(transport) on n processes; what each ended with.
template <class F> std::vector<Ended> on_processes(int n, F&& f, Seconds timeout = Seconds(30)) {
  return ringtape::test::run_processes(n, timeout, [&](const Context& context) {
    const int devices = runtime(kCuda).device_count();
    f(ipc_transport(context, {DeviceType::cuda, context.rank % devices}));
  });
}

void expect_all_well(const std::vector<Ended>& ends) {
  for (size_t r = 0; r < ends.size(); ++r) EXPECT_EQ(ends[r].status, 0) << "rank " << r << ": " << ends[r].error;
}

void expect(const Tensor& y, const std::function<double(int64_t)>& want, const char* what) {
  const std::vector<double> all = values(y);
  for (size_t i = 0; i < all.size(); ++i)
    RT_CHECK(all[i] == want(int64_t(i)), what, ": element ", i, " of ", all.size(), " is ", all[i], ", expected ",
             want(int64_t(i)));
}

class CudaIpc : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
  }
};

Tensor numbers(int64_t count, int rank, Device device) {
  Tensor x({count});
  for (int64_t i = 0; i < count; ++i) x.data<float>()[i] = float(100 * rank + int(i % 50));
  return to(x, device);
}

// Every collective, as a group does it.
void all_collectives(ProcessGroup& group, int64_t c) {
  const Device device = group.transport().device();
  const int n = group.size(), r = group.rank();
  const auto made = [](int rank, int64_t i) { return double(100 * rank + i % 50); };
  const auto sum = [&](int64_t i) { return 100.0 * n * (n - 1) / 2 + double(n) * double(i % 50); };
  const Tensor x = numbers(c, r, device), xs = numbers(n * c, r, device);
  const auto empty = [&](int64_t count) { return full({count}, -1, DType::f32, device); };

  const Tensor y = numbers(c, r, device), part = empty(c), all = empty(n * c);
  group.all_reduce(y).wait();
  expect(y, sum, "all_reduce");
  group.reduce_scatter(part, xs).wait();
  expect(
      part, [&](int64_t i) { return sum(r * c + i); }, "reduce_scatter");
  group.all_gather(all, x).wait();
  expect(
      all, [&](int64_t i) { return made(int(i / c), i % c); }, "all_gather");
  group.all_to_all(all, xs).wait();
  expect(
      all, [&](int64_t i) { return made(int(i / c), r * c + i % c); }, "all_to_all");
  for (int root = 0; root < n; ++root) {
    const Tensor shown = numbers(c, r, device);
    group.broadcast(shown, root).wait();
    expect(
        shown, [&](int64_t i) { return made(root, i); }, "broadcast");
    const bool own = r == root;
    group.reduce(own ? part : Tensor(), x, root).wait();
    if (own) expect(part, sum, "reduce");
    group.gather(own ? all : Tensor(), x, root).wait();
    if (own)
      expect(
          all, [&](int64_t i) { return made(int(i / c), i % c); }, "gather");
    group.scatter(part, own ? xs : Tensor(), root).wait();
    expect(
        part, [&](int64_t i) { return made(root, r * c + i); }, "scatter");
    group.barrier().wait();
  }
}

TEST_F(CudaIpc, EveryCollective) {
  for (const int n : {1, 2, 3})
    expect_all_well(on_processes(n, [](std::unique_ptr<Transport> t) {
      ProcessGroup group(std::move(t));
      for (const int64_t count : {1, 5009}) all_collectives(group, count);
      all_collectives(*group.split(group.rank() % 2, 0), 17);
    }));
}

TEST_F(CudaIpc, EveryAllReduce) {
  expect_all_well(on_processes(3, [](std::unique_ptr<Transport> t) {
    uint64_t sequence = 0;
    for (const Algorithm* a : algorithms())
      for (const int64_t count : {0, 1, 2, 40003}) {
        if (!a->all_reduce) continue;
        const Tensor y = numbers(count, t->rank(), t->device());
        t->begin({.kind = Collective::all_reduce, .dtype = DType::f32, .count = count, .sequence = ++sequence},
                 Deadline(Seconds(30)));
        a->all_reduce(*t, View(y).data, View(y).data);
        t->reached()->wait();
        expect(
            y, [](int64_t i) { return 300.0 + 3.0 * double(i % 50); }, a->name);
      }
  }));
}

// Two ranks on one GPU, which NCCL takes for GPUs of two machines.
TEST_F(CudaIpc, EveryCollectiveOverNcclInstead) {
  if (!nccl_transport) GTEST_SKIP() << "this build has no NCCL";
  expect_all_well(ringtape::test::run_processes(2, Seconds(60), [](const Context& context) {
    ::setenv("NCCL_HOSTID", concat("rank ", context.rank).c_str(), 1);
    ProcessGroup group(make_transport("nccl", context, kCuda));
    for (const int64_t count : {1, 5009}) all_collectives(group, count);
  }));
}

TEST_F(CudaIpc, IsAutomaticForRanksOfOneGpuOrWithoutNccl) {
  expect_all_well(ringtape::test::run_processes(2, Seconds(30), [](const Context& context) {
    const auto chosen = [&](const char* key, int index) {
      Context own = context;
      own.store = prefix_store(context.store, key);
      return std::string(make_transport("auto", own, {DeviceType::cuda, index})->name());
    };
    EXPECT_EQ(chosen("one", 0), "ipc");
    const auto store = memory_store();
    store->set("auto/1", "another host GPU-1");
    const auto apart = [&] { make_transport("auto", {0, 2, store, context.failure, Seconds(20)}, kCuda); };
    if (!nccl_transport) {
      EXPECT_MENTIONS(ringtape::test::message_of<UsageError>(apart),
                      "ranks on GPUs of several hosts or containers need NCCL, which this build does not have");
    }
    if (runtime(kCuda).device_count() == 1) return;
    EXPECT_EQ(chosen("own", context.rank), nccl_transport ? "nccl" : "ipc");
  }));
}

TEST_F(CudaIpc, TrainsWithTheBytesOfThreadsOverP2p) {
  for (const int n : {2, 3}) {
    const ringtape::test::TemporaryFolder folder;
    const auto keep = [&](const char* name, const Context& context) {
      const Device own{DeviceType::cuda, context.rank % runtime(kCuda).device_count()};
      ProcessGroup group(make_transport(name, context, own));
      const std::vector<double> weights =
          ringtape::test::weights_after_steps(group, true, std::string_view(name) == "ipc");
      const std::string bytes(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(double));
      if (group.rank() == 0) write_file(folder.path() + "/" + name, bytes);
    };
    expect_all_well(ringtape::test::run_processes(1, Seconds(60), [&](const Context&) {
      const auto of_rank = [&](const Context& context) { set_threads(1), keep("p2p", context); };
      EXPECT_EQ(comm::test::run_threads(n, 1, Seconds(60), of_rank), "");
    }));
    expect_all_well(ringtape::test::run_processes(n, Seconds(60), [&](const Context& c) { keep("ipc", c); }));
    const std::string p2p = read_file(folder.path() + "/p2p"), ipc = read_file(folder.path() + "/ipc");
    EXPECT_EQ(p2p.size(), size_t(ringtape::test::kWeightsOfSteps) * sizeof(double));
    EXPECT_TRUE(p2p == ipc) << n << " ranks";
  }
}

// More pieces than there are slots, both ways at once, again and again; the sender's
// buffer is written to behind finish().
TEST_F(CudaIpc, LongMessages) {
  expect_all_well(on_processes(2, [](std::unique_ptr<Transport> t) {
    constexpr int64_t kCount = 600001;  // five slots
    const Tensor x({kCount}, DType::f32, t->device()), y({kCount}, DType::f32, t->device());
    const size_t bytes = size_t(kCount) * 4;
    for (int round = 0; round < 2; ++round) {
      const Tensor made = numbers(kCount, t->rank() + round, t->device());
      t->begin({.kind = Collective::all_to_all, .dtype = DType::f32, .count = kCount, .sequence = uint64_t(round) + 1},
               Deadline(Seconds(30)));
      t->copy(View(x).data, View(made).data, bytes);
      const int peer = 1 - t->rank();
      t->exchange({send_to(peer, View(x).data, bytes), recv_from(peer, View(y).data, bytes)});
      t->copy(View(x).data, View(y).data, bytes);
      t->reached()->wait();
      expect(
          x, [&](int64_t i) { return double(100 * (peer + round) + i % 50); }, "round");
    }
  }));
}

TEST_F(CudaIpc, ADeadRankIsNamed) {
  const auto ends = on_processes(3, [](std::unique_ptr<Transport> t) {
    ProcessGroup group(std::move(t));
    const Tensor y = numbers(100, group.rank(), group.transport().device());
    group.all_reduce(y).wait();
    if (group.rank() == 1) ::raise(SIGKILL);
    group.all_reduce(y).wait();
  });
  for (const int r : {0, 2}) {
    EXPECT_NE(ends[size_t(r)].error.find("rank 1 (process "), std::string::npos) << ends[size_t(r)].error;
    EXPECT_NE(ends[size_t(r)].error.find(") died; rank "), std::string::npos) << ends[size_t(r)].error;
  }
}

TEST_F(CudaIpc, NothingHangs) {
  const auto different = on_processes(2, [](std::unique_ptr<Transport> t) {
    ProcessGroup group(std::move(t));
    group.all_reduce(numbers(100 + group.rank(), 0, group.transport().device())).wait();
  });
  EXPECT_TRUE(different[0].error.find("the ranks make different calls") != std::string::npos ||
              different[1].error.find("the ranks make different calls") != std::string::npos)
      << different[0].error << different[1].error;
#if defined(RINGTAPE_EMULATION_BUILD)
  constexpr double kDeadline = 0.5;
#else
  constexpr double kDeadline = 10;  // of the ranks' meeting, too: a GPU takes its time to start
#endif
  const auto absent = on_processes(
      2,
      [](std::unique_ptr<Transport> t) {
        ProcessGroup group(std::move(t));
        if (group.rank() == 0) group.all_reduce(numbers(100, 0, group.transport().device())).wait();
        else std::this_thread::sleep_for(Seconds(3 * kDeadline));
      },
      Seconds(kDeadline));
  EXPECT_NE(absent[0].error.find(concat("rank 0 waited ", kDeadline, " s for rank 1 in all_reduce #1")),
            std::string::npos)
      << absent[0].error;
}

// Ranks of one process have p2p.
TEST_F(CudaIpc, NotWithinOneProcess) {
  const auto ends = ringtape::test::run_processes(1, Seconds(20), [](const Context&) {
    const auto store = memory_store();
    const auto failure = std::make_shared<Failure>();
    std::string causes[2];
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r)
      threads.emplace_back([&, r] {
        try {
          ipc_transport({r, 2, store, failure, Seconds(10)}, kCuda);
        } catch (const CommError& e) {
          causes[r] = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    for (const std::string& cause : causes)
      RT_CHECK(cause.find("are threads of one process; use p2p") != cause.npos, cause);
  });
  expect_all_well(ends);
}

}  // namespace
}  // namespace ringtape::comm
