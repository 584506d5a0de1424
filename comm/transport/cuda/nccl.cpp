#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "comm/transport/call_log.h"
#include "comm/transport/cuda/nccl_calls.h"
#include "comm/transport/gpu.h"
#include "comm/transport/unique_devices.h"
#include "core/limits.h"

namespace ringtape::cuda {

void check(ncclResult_t status, const char* what, const char* file, int line) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  throw CommError(concat(what, " failed: ", ncclGetErrorString(status), ": ", ncclGetLastError(nullptr), " (", file,
                         ":", line, ")"));
}

}  // namespace ringtape::cuda

namespace ringtape::comm::cuda {

using namespace ringtape::cuda;

namespace {

// After this time a waiting rank compares its calls with the other ranks.
constexpr Seconds kLate(1);

// Calls never block: NCCL answers "in progress", and settle() asks again while it checks the failure and the deadline.
// A thread watches the work on the stream. A failure of any origin aborts the communicator, which ends its kernels.
// NCCL's messages carry no header, so the ranks compare their operations separately once one of them waits.
class Nccl : public NcclTransport {
 public:
  Nccl(Context context, Device device) : NcclTransport(std::move(context), device) {
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
    const bool leaving = std::uncaught_exceptions() > 0;  // the other ranks may wait for this one elsewhere
    const auto unless_leaving = [&](void (Nccl::*step)()) {
      try {
        if (!leaving) (this->*step)();
      } catch (const Error&) {  // the device is lost
      }
    };
    unless_leaving(&Nccl::drain);
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    left_.notify_all();
    watch_.join();
    context_.failure->remove(listener_);
    unless_leaving(&Nccl::close);
    abort();
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
    call([&](ncclComm_t comm, cudaStream_t stream) {
      in_group([&] {
        for (const Transfer& t : transfers) {
          if (t.bytes == 0) continue;
          if (t.way == Transfer::Way::send) RT_GPU_CHECK(ncclSend(t.data, t.bytes, ncclUint8, t.peer, comm, stream));
          else RT_GPU_CHECK(ncclRecv(t.data, t.bytes, ncclUint8, t.peer, comm, stream));
        }
      });
    });
  }

  std::shared_ptr<StreamPoint> reached() override {
    std::shared_ptr<StreamPoint> point = GpuTransport::reached();
    const std::lock_guard lock(mutex_);
    running_.push_back({operation_, deadline_, Clock::now(), point});
    asking_.reset();
    return point;
  }

  void call(const std::function<void(ncclComm_t, cudaStream_t)>& f) override {
    context_.failure->check();
    use(index());
    {
      const std::lock_guard lock(mutex_);
      if (comm_) f(comm_, stream_);
    }
    settle();
  }

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
    settle("a communicator");
  }

  // Returns when all work on the stream is done, or when the watch has raised a failure.
  void drain() {
    const auto done = [this] {
      const std::lock_guard lock(mutex_);
      return running_.empty() || running_.back().end->passed();
    };
    while (!done() && !context_.failure->raised()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  // Destroys the communicator. NCCL may wait for the other ranks of this machine, which may still be busy elsewhere:
  // that is no failure, and it stays as it is after some time.
  void close() {
    if (context_.failure->raised()) return;
    use(index());
    {
      const std::lock_guard lock(mutex_);
      if (comm_) RT_GPU_CHECK(ncclCommFinalize(comm_));
    }
    const Deadline deadline(std::min(context_.timeout, Seconds(10)));
    ncclResult_t now = state();
    for (; now == ncclInProgress && !deadline.passed() && !context_.failure->raised(); now = state())
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    const std::lock_guard lock(mutex_);
    if (comm_ && now == ncclSuccess) RT_GPU_CHECK(ncclCommDestroy(std::exchange(comm_, nullptr)));
  }

  // The state of the communicator; success if there is none.
  ncclResult_t state() {
    const std::lock_guard lock(mutex_);
    ncclResult_t state = ncclSuccess;
    if (comm_) RT_GPU_CHECK(ncclCommGetAsyncError(comm_, &state));
    return state;
  }

  // `what`: of the message if it is not the operation that is awaited.
  void settle(const char* what = nullptr) {
    for (ncclResult_t now = state();; now = state()) {
      context_.failure->check();
      if (now == ncclSuccess) return;
      const auto named = [&] { return what ? what : operation_.str(); };
      if (now != ncclInProgress)
        fail(concat("rank ", rank(), ": NCCL reports ", ncclGetErrorString(now), " in ", named()));
      if (deadline_.passed())
        fail(concat("rank ", rank(), ": NCCL has not started ", named(), " within ", context_.timeout.count(), " s"));
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

}  // namespace

std::unique_ptr<Transport> nccl_transport(Context context, Device device) {
  return std::make_unique<Nccl>(std::move(context), device);
}
std::string nccl_version() {
  int n = 0;
  RT_GPU_CHECK(ncclGetVersion(&n));
  return n == 0 ? "emulated" : concat(n / 10000, '.', n / 100 % 100, '.', n % 100);
}

}  // namespace ringtape::comm::cuda
