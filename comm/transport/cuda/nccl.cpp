#include <cuda_runtime_api.h>
#include <nccl.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "comm/algorithm/parts.h"
#include "comm/transport/call_log.h"
#include "comm/transport/cuda/stream.h"
#include "comm/transport/gpu.h"
#include "comm/transport/unique_devices.h"
#include "core/cuda/check.h"
#include "core/limits.h"

namespace ringtape::cuda {

static void check(ncclResult_t status, const char* what, const char* file, int line) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  throw CommError(concat(what, " failed: ", ncclGetErrorString(status), ": ", ncclGetLastError(nullptr), " (", file,
                         ":", line, ")"));
}

}  // namespace ringtape::cuda

namespace ringtape::comm::cuda {

using namespace ringtape::cuda;

namespace {

constexpr ncclDataType_t nccl_type(DType dtype) {
  constexpr ncclDataType_t types[] = {ncclUint8,   ncclUint8,    ncclInt32,   ncclInt64,
                                      ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64};
  return types[size_t(dtype)];
}
constexpr ncclRedOp_t nccl_op(ReduceOp op) {
  constexpr ncclRedOp_t ops[] = {ncclSum, ncclAvg, ncclMax, ncclMin, ncclProd};
  return ops[size_t(op)];
}

// After this time a waiting rank compares its calls with the other ranks.
constexpr Seconds kLate(1);

// Calls never block: NCCL answers "in progress", and settle() asks again while it checks the failure and the deadline.
// A thread watches the work on the stream. A failure of any origin aborts the communicator, which ends its kernels.
// NCCL's messages carry no header, so the ranks compare their operations separately once one of them waits.
class Nccl : public GpuTransport {
 public:
  Nccl(Context context, Device device) : GpuTransport(std::move(context), device) {
    deadline_ = Deadline(context_.timeout);
    // With NCCL_HOSTID, NCCL treats ranks of one GPU as ranks of different machines: for tests.
    if (!std::getenv("NCCL_HOSTID")) check_unique_devices(context_, machine_id(), uuid_of(index()));
    listener_ = context_.failure->on_raise([this](const std::string&) { abort(); });
    try {
      connect();
    } catch (...) {
      context_.failure->remove(listener_);
      abort();
      throw;
    }
    watch_ = start_thread("the watch over NCCL", [this] { watch(); });
  }

  ~Nccl() override {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    left_.notify_all();
    watch_.join();
    context_.failure->remove(listener_);
    try {
      deadline_ = Deadline(std::min(context_.timeout, Seconds(10)));
      call([&] { RT_GPU_CHECK(ncclCommFinalize(comm_)); });
      const std::lock_guard lock(mutex_);
      if (comm_) RT_GPU_CHECK(ncclCommDestroy(comm_));
      comm_ = nullptr;
    } catch (const Error&) {
      abort();
    }
  }

  std::string_view name() const override { return "nccl"; }
  Abilities abilities() const override { return {.has_collectives = true}; }
  std::unique_ptr<Transport> open(Context context) const override {
    return nccl_transport(std::move(context), device_);
  }

  // All transfers that are started before the next finish() form one group: on a stream, a second group would wait for
  // the first.
  Ticket start(std::span<const Transfer> transfers) override {
    queued_.insert(queued_.end(), transfers.begin(), transfers.end());
    return ticket_++;
  }
  void finish(Ticket) override {
    if (queued_.empty()) return;
    const std::vector<Transfer> transfers = std::move(queued_);
    queued_.clear();
    call([&] {
      RT_GPU_CHECK(ncclGroupStart());
      for (const Transfer& t : transfers) {
        if (t.bytes == 0) continue;
        if (t.way == Transfer::Way::send) RT_GPU_CHECK(ncclSend(t.data, t.bytes, ncclUint8, t.peer, comm_, stream_));
        else RT_GPU_CHECK(ncclRecv(t.data, t.bytes, ncclUint8, t.peer, comm_, stream_));
      }
      RT_GPU_CHECK(ncclGroupEnd());
    });
  }

  std::shared_ptr<StreamPoint> reached() override {
    std::shared_ptr<StreamPoint> point = GpuTransport::reached();
    const std::lock_guard lock(mutex_);
    running_.push_back({operation_, deadline_, Clock::now(), point});
    asking_.reset();
    return point;
  }

  // Runs f, which calls NCCL, and waits until NCCL has accepted everything.
  template <class F>
  void call(F&& f) {
    context_.failure->check();
    use(index());
    {
      const std::lock_guard lock(mutex_);
      if (comm_) f();
    }
    settle();
  }
  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }

 private:
  void opened() override {
    GpuTransport::opened();
    calls_.add(operation_);
    const std::lock_guard lock(mutex_);
    asking_ = Clock::now();
  }

  struct Running {
    Operation operation;
    Deadline deadline;
    Clock::time_point since;
    std::shared_ptr<StreamPoint> end;
  };

  void connect() {
    ncclUniqueId id;
    if (rank() == 0) {
      RT_GPU_CHECK(ncclGetUniqueId(&id));
      context_.store->set("nccl/id", std::string(id.internal, sizeof id.internal));
    }
    const std::string known = context_.store->wait("nccl/id", deadline_);
    RT_CHECK_AS(CommError, known.size() == sizeof id.internal, "nccl: an id of ", known.size(), " bytes instead of ",
                sizeof id.internal);
    std::memcpy(id.internal, known.data(), known.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    context_.failure->check();
    use(index());
    {
      const std::lock_guard lock(mutex_);
      RT_GPU_CHECK(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config));
    }
    settle();
  }

  // The state of the communicator; success if there is none.
  ncclResult_t state() {
    const std::lock_guard lock(mutex_);
    ncclResult_t state = ncclSuccess;
    if (comm_) RT_GPU_CHECK(ncclCommGetAsyncError(comm_, &state));
    return state;
  }

  void settle() {
    for (ncclResult_t now = state();; now = state()) {
      context_.failure->check();
      if (now == ncclSuccess) return;
      if (now != ncclInProgress)
        fail(concat("rank ", rank(), ": NCCL reports ", ncclGetErrorString(now), " in ", operation_));
      if (deadline_.passed())
        fail(
            concat("rank ", rank(), ": NCCL has not started ", operation_, " within ", context_.timeout.count(), " s"));
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  [[noreturn]] void fail(const std::string& cause) {
    context_.failure->raise(cause);
    context_.failure->check();
    throw CommError(cause);
  }

  // Raises the failure for work that hangs on the stream, or for an asynchronous error of NCCL.
  void watch() {
    try {
      use(index());
      auto looked = Clock::now();
      for (std::unique_lock lock(mutex_);
           !left_.wait_for(lock, std::chrono::milliseconds(50), [&] { return leaving_; });) {
        while (!running_.empty() && running_.front().end->passed()) running_.pop_front();
        const bool late = !running_.empty() && running_.front().deadline.passed();
        const std::string what = running_.empty() ? "" : concat(" in ", running_.front().operation);
        const auto now = Clock::now();
        const bool waits = now - (running_.empty() ? asking_.value_or(now) : running_.front().since) > kLate;
        lock.unlock();
        if (now - looked > kLate) {
          calls_.look(waits);
          looked = now;
        }
        if (late)
          fail(concat("rank ", rank(), " waited ", context_.timeout.count(), " s for the other ranks", what,
                      " over nccl"));
        const ncclResult_t status = state();
        if (status != ncclSuccess && status != ncclInProgress)
          fail(concat("rank ", rank(), ": NCCL reports ", ncclGetErrorString(status), what));
        if (context_.failure->raised()) return;
        lock.lock();
      }
    } catch (const Error& e) {
      context_.failure->raise(e.what());
    }
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
  }

  std::mutex mutex_;  // protects NCCL's calls and the data of watch()
  std::condition_variable left_;
  bool leaving_ = false;
  ncclComm_t comm_ = nullptr;
  int listener_ = 0;
  std::vector<Transfer> queued_;
  Ticket ticket_ = 0;
  std::deque<Running> running_;
  // When the current operation was given to NCCL; empty once all of it is on the stream.
  std::optional<Clock::time_point> asking_;
  CallLog calls_{context_};
  std::thread watch_;
};

struct Call {
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  ncclComm_t comm;
  cudaStream_t stream;
};

template <class F>
void collective(Transport& transport, F&& f) {
  auto* const nccl = dynamic_cast<Nccl*>(&transport);
  RT_CHECK_AS(CommError, nccl, "the algorithm 'nccl' runs over the transport 'nccl', not over ", transport.name());
  const Operation& o = transport.operation();
  nccl->call([&] {
    f(Call{size_t(o.count), nccl_type(o.dtype), nccl_op(o.op), o.root, nccl->comm(), nccl->stream()});
  });
}

void all_reduce(Transport& t, const void* x, void* y) {
  collective(t, [&](const Call& c) { RT_GPU_CHECK(ncclAllReduce(x, y, c.count, c.type, c.op, c.comm, c.stream)); });
}
// For parts of different sizes, a group of one call a part.
template <class F>
void each_part(Transport& t, F&& f) {
  collective(t, [&](const Call& c) {
    RT_GPU_CHECK(ncclGroupStart());
    for (int r = 0; r < t.size(); ++r)
      if (const Part part = t.part(r); part.size() > 0) f(c, r, part);
    RT_GPU_CHECK(ncclGroupEnd());
  });
}
void reduce_scatter(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype);
  if (t.operation().cuts == 0)
    return collective(
        t, [&](const Call& c) { RT_GPU_CHECK(ncclReduceScatter(x, y, c.count, c.type, c.op, c.comm, c.stream)); });
  each_part(t, [&](const Call& c, int r, Part part) {
    RT_GPU_CHECK(
        ncclReduce(at(x, part.begin, width), y, size_t(part.size()), c.type, c.op, r, c.comm, c.stream));
  });
}
void all_gather(Transport& t, const void* x, void* y) {
  const size_t width = size_of(t.operation().dtype);
  if (t.operation().cuts == 0)
    return collective(t,
                      [&](const Call& c) { RT_GPU_CHECK(ncclAllGather(x, y, c.count, c.type, c.comm, c.stream)); });
  each_part(t, [&](const Call& c, int r, Part part) {
    RT_GPU_CHECK(ncclBroadcast(x, at(y, part.begin, width), size_t(part.size()), c.type, r, c.comm, c.stream));
  });
}
void broadcast(Transport& t, const void*, void* y) {
  collective(t, [&](const Call& c) { RT_GPU_CHECK(ncclBroadcast(y, y, c.count, c.type, c.root, c.comm, c.stream)); });
}
void reduce(Transport& t, const void* x, void* y) {
  collective(t,
             [&](const Call& c) { RT_GPU_CHECK(ncclReduce(x, y, c.count, c.type, c.op, c.root, c.comm, c.stream)); });
}


// Collectives that NCCL does not have, at least before version 2.28, are one group of messages.
void together(Transport& t, const std::vector<Transfer>& transfers) { t.finish(t.start(transfers)); }

void gather(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  if (t.rank() != op.root) return t.exchange({send_to(op.root, x, op.bytes())});
  const auto place = [&](int r) { return at(y, op.count * r, size_of(op.dtype)); };
  std::vector<Transfer> all;
  for (int r = 0; r < t.size(); ++r)
    if (r != t.rank()) all.push_back(recv_from(r, place(r), op.bytes()));
  together(t, all);
  t.copy(place(t.rank()), x, op.bytes());
}

void scatter(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  if (t.rank() != op.root) return t.exchange({recv_from(op.root, y, op.bytes())});
  const auto place = [&](int r) { return at(x, op.count * r, size_of(op.dtype)); };
  std::vector<Transfer> all;
  for (int r = 0; r < t.size(); ++r)
    if (r != t.rank()) all.push_back(send_to(r, place(r), op.bytes()));
  together(t, all);
  t.copy(y, place(t.rank()), op.bytes());
}

void all_to_all(Transport& t, const void* x, void* y) {
  const Operation& op = t.operation();
  const size_t width = size_of(op.dtype), whole = op.bytes() * size_t(t.size());
  if (x == y && t.size() > 1) {
    void* const copy = t.scratch(whole);
    t.copy(copy, x, whole);
    x = copy;
  }
  std::vector<Transfer> all;
  for (int r = 0; r < t.size(); ++r) {
    if (r == t.rank()) continue;
    all.push_back(send_to(r, at(x, op.count * r, width), op.bytes()));
    all.push_back(recv_from(r, at(y, op.count * r, width), op.bytes()));
  }
  together(t, all);
  t.copy(at(y, op.count * t.rank(), width), at(x, op.count * t.rank(), width), op.bytes());
}

// The host waits too: no rank leaves before all have come.
void barrier(Transport& t, const void*, void*) {
  void* const token = t.scratch(1);
  collective(
      t, [&](const Call& c) { RT_GPU_CHECK(ncclAllReduce(token, token, 1, ncclUint8, ncclMax, c.comm, c.stream)); });
  const auto met = t.reached();
  for (Wait wait(t, (t.rank() + 1) % t.size()); !met->passed();) wait.pause();
}

}  // namespace

const Algorithm nccl = {.name = "nccl",
                        .about = "NCCL's own choice, in one kernel",
                        .all_reduce = all_reduce,
                        .reduce_scatter = reduce_scatter,
                        .all_gather = all_gather,
                        .broadcast = broadcast,
                        .reduce = reduce,
                        .gather = gather,
                        .scatter = scatter,
                        .all_to_all = all_to_all,
                        .barrier = barrier};

std::unique_ptr<Transport> nccl_transport(Context context, Device device) {
  return std::make_unique<Nccl>(std::move(context), device);
}
std::string nccl_version() {
  int n = 0;
  RT_GPU_CHECK(ncclGetVersion(&n));
  return concat(n / 10000, '.', n / 100 % 100, '.', n % 100);
}

}  // namespace ringtape::comm::cuda
