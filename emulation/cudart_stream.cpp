// The stand-in for libcudart: streams and events.
#include <algorithm>
#include <map>

#include "core/check.h"
#include "emulation/cudart.h"
#include "emulation/report.h"

using namespace ringtape;
using namespace ringtape::emulation;

struct CUevent_st {
  int device = 0;
  bool timed = false;
  bool shared =
      false;  // between processes: complete when recorded, since another process cannot run this one's streams
  bool recorded = false;
  Point point;
  std::shared_ptr<double> milliseconds;  // on the fake clock, when the point is reached
  std::shared_ptr<Capture> capture;      // the capture in which it was last recorded
  std::vector<size_t> frontier;
};

namespace ringtape::emulation {
namespace {

constexpr size_t kLongestQueue = 10000;      // above it work runs although nobody waits
constexpr double kMillisecondsEach = 0.001;  // of the fake clock, per operation

struct State {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  std::map<int, std::shared_ptr<CUstream_st>> defaults;  // by device
  double clock = 0, host_clock = 0;
  bool failed = false;
  uint64_t random = 0x9E3779B97F4A7C15ull;
};
State& state() {
  static State& s = *new State;
  return s;
}

size_t random_below(size_t n) {  // xorshift64
  uint64_t& x = state().random;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return size_t(x % n);
}

bool can_run(const CUstream_st& s) {
  if (s.queue.empty()) return false;
  const std::vector<Point>& after = s.queue.front().after;
  return std::all_of(after.begin(), after.end(), [](const Point& p) { return p.reached(); });
}

void run_next(CUstream_st& stream) {
  const auto kept = stream.shared_from_this();
  const Operation next = std::move(stream.queue.front());
  stream.queue.pop_front();
  const uint64_t before = report_count();
  state().clock = std::max(state().clock, next.issued) + kMillisecondsEach;
  if (next.run) next.run();
  if (report_count() != before) state().failed = true;
  ++stream.completed;
  if (stream.destroyed && stream.queue.empty()) std::erase(state().streams, kept);
}

// Runs the first operation that the point needs and that can run. False: all wait for work that is not issued yet.
// `seen`: the streams on the way to the point.
bool run_needed(const Point& point, std::vector<const CUstream_st*>& seen) {
  CUstream_st& stream = *point.stream;
  if (can_run(stream)) return run_next(stream), true;
  if (stream.queue.empty() || std::find(seen.begin(), seen.end(), &stream) != seen.end()) return false;
  seen.push_back(&stream);
  for (const Point& p : stream.queue.front().after)
    if (!p.reached() && run_needed(p, seen)) return true;
  return false;
}
bool run_needed(const Point& point) {
  std::vector<const CUstream_st*> seen;
  return run_needed(point, seen);
}

// Runs one operation of a stream that can continue. If there is none, all that is queued waits for work that is not
// issued yet.
bool run_one() {
  std::vector<CUstream_st*> ready;
  for (const auto& s : state().streams)
    if (can_run(*s)) ready.push_back(s.get());
  if (ready.empty()) return false;
  size_t choice = 0;
  if (schedule() == Schedule::random) choice = random_below(ready.size());
  if (schedule() == Schedule::reverse) choice = ready.size() - 1;
  run_next(*ready[choice]);
  return true;
}

// Reverse: other streams first.
bool run_other(const CUstream_st& target) {
  for (auto it = state().streams.rbegin(); it != state().streams.rend(); ++it)
    if (it->get() != &target && can_run(**it)) return run_next(**it), true;
  return false;
}

cudaError_t make_stream(cudaStream_t* out, unsigned flags) {
  if (flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
  const auto made = open_stream(current_device());
  made->blocking = flags != cudaStreamNonBlocking;
  *out = made.get();
  return cudaSuccess;
}

}  // namespace

bool Point::reached() const { return !stream || stream->completed >= number; }

std::shared_ptr<CUstream_st> stream_of(cudaStream_t handle) {
  if (!handle || handle == cudaStreamLegacy) {
    auto& made = state().defaults[current_device()];
    if (!made) {
      made = std::make_shared<CUstream_st>();
      made->device = current_device();
      state().streams.push_back(made);
    }
    return made;
  }
  for (const auto& s : state().streams)
    if (s.get() == handle && !s->destroyed) return s;
  return nullptr;
}

void put(CUstream_st& stream, Work work, std::vector<Point> after) {
  if (stream.capture) {
    if (stream.capture->thread != std::this_thread::get_id())
      report("foreign-capture", {},
             "work on a stream that another thread captures: it is executed when the graph is launched, not now");
    stream.capture->nodes.push_back({std::move(work), stream.frontier});
    stream.frontier = {stream.capture->nodes.size() - 1};
    return;
  }
  Operation operation{std::move(work), std::move(after), state().host_clock};
  const auto found = state().defaults.find(stream.device);
  if (found != state().defaults.end() && stream.blocking) {
    if (found->second.get() != &stream) operation.after.push_back(end_of(*found->second));
    else
      for (const auto& s : state().streams)
        if (s->blocking && s->device == stream.device && s.get() != &stream) operation.after.push_back(end_of(*s));
  }
  stream.queue.push_back(std::move(operation));
  ++stream.issued;
  if (stream.queue.size() > kLongestQueue) wait_for({stream.shared_from_this(), stream.completed + kLongestQueue / 2});
}

void wait_for(Point point) {
  const auto run = [&] {
    if (schedule() == Schedule::forward) return run_needed(point);
    if (schedule() == Schedule::random) return run_one();
    return run_other(*point.stream) || run_needed(point);
  };
  while (!point.reached())
    if (!run()) let_others_call();
  state().host_clock = std::max(state().host_clock, state().clock);
}

void run_a_little(const Point& point) {
  if (schedule() == Schedule::random) run_one();
  else if (const auto& stream = *point.stream; can_run(stream)) run_next(*point.stream);
  else run_one();
}

void wait_for_all() {
  while (run_one()) {
  }
}

std::shared_ptr<CUstream_st> open_stream(int device) {
  auto made = std::make_shared<CUstream_st>();
  made->device = device;
  made->blocking = false;
  state().streams.push_back(made);
  return made;
}

void close_stream(CUstream_st& stream) {
  stream.destroyed = true;
  if (stream.queue.empty()) std::erase(state().streams, stream.shared_from_this());
}

void pass_time(double milliseconds) { state().clock += milliseconds; }
void pass_host_time(double milliseconds) { state().host_clock += milliseconds; }

size_t queued() {
  size_t n = 0;
  api_call([&] {
    for (const auto& s : state().streams) n += s->queue.size();
    return cudaSuccess;
  });
  return n;
}

void release_streams(const Capture& capture) {
  for (const auto& s : state().streams)
    if (s->capture.get() == &capture) s->capture = nullptr;
}

cudaError_t failure() {
  if (state().failed && reports().empty()) state().failed = false;
  return state().failed ? cudaErrorLaunchFailure : cudaSuccess;
}

}  // namespace ringtape::emulation

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return api_call([&] { return make_stream(out, flags); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int) {
  return api_call([&] { return make_stream(out, flags); });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return api_call([&] {
    const auto stream = handle ? stream_of(handle) : nullptr;
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) stream->capture->invalid = true;
    close_stream(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return api_call([&] {
    const auto stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = refused_on(*stream)) return refused;
    wait_for(end_of(*stream));
    trim_pools(stream->device);
    return failure();
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return api_call([&] {
    const auto stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = refused_on(*stream)) return refused;
    if (stream->queue.empty()) return failure();
    run_a_little(end_of(*stream));
    return cudaErrorNotReady;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api_call([&] {
    if (capturing(current_device())) {
      invalidate_captures_of(current_device());
      return cudaErrorStreamCaptureUnsupported;
    }
    const auto streams = state().streams;
    for (const auto& s : streams)
      if (s->device == current_device()) wait_for(end_of(*s));
    trim_pools(current_device());
    return failure();
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return api_call([&] {
    *out = new CUevent_st;
    (*out)->device = current_device();
    (*out)->timed = !(flags & cudaEventDisableTiming);
    (*out)->shared = flags & cudaEventInterprocess;
    if ((*out)->shared && (*out)->timed) {
      delete *out;
      return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api_call([&] {
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return api_call([&] {
    const auto stream = stream_of(handle);
    if (!event || !stream || stream->device != event->device) return cudaErrorInvalidResourceHandle;
    event->capture = stream->capture;
    if (stream->capture) {
      event->frontier = stream->frontier;
      return cudaSuccess;
    }
    auto when = std::make_shared<double>(0);
    put(*stream, [when] { *when = state().clock; });
    event->milliseconds = when;
    event->point = end_of(*stream);
    event->recorded = true;
    if (event->shared) wait_for(event->point);
    return event->shared ? failure() : cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return api_call([&] {
    const auto stream = stream_of(handle);
    if (!event || !stream) return cudaErrorInvalidResourceHandle;
    if (event->capture) {
      if (event->capture->ended) return cudaErrorCapturedEvent;
      if (stream->capture && stream->capture != event->capture) return cudaErrorStreamCaptureMerge;
      stream->capture = event->capture;  // takes part from now on
      stream->frontier.insert(stream->frontier.end(), event->frontier.begin(), event->frontier.end());
      return cudaSuccess;
    }
    if (stream->capture && event->recorded) {
      stream->capture->invalid = true;
      return cudaErrorStreamCaptureIsolation;
    }
    put(*stream, {}, {event->point});
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api_call([&] {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (event->capture && !event->capture->ended) return cudaErrorCapturedEvent;
    wait_for(event->point);
    return failure();
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api_call([&] {
    if (!event) return cudaErrorInvalidResourceHandle;
    if (event->capture && !event->capture->ended) return cudaErrorCapturedEvent;
    if (event->point.reached()) return failure();
    run_a_little(event->point);
    return cudaErrorNotReady;
  });
}

// An event of another process is complete when it is recorded, so waiting for it is a no-op here.
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return api_call([&] {
    if (!event || !event->shared) return cudaErrorInvalidResourceHandle;
    *handle = {};
    return cudaSuccess;
  });
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* out, cudaIpcEventHandle_t) {
  return api_call([&] {
    *out = new CUevent_st;
    (*out)->device = current_device();
    (*out)->shared = true;
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return api_call([&] {
    if (!start || !end || !start->timed || !end->timed || !start->recorded || !end->recorded)
      return cudaErrorInvalidResourceHandle;
    if (!start->point.reached() || !end->point.reached()) return cudaErrorNotReady;
    *milliseconds = float(*end->milliseconds - *start->milliseconds);
    return cudaSuccess;
  });
}

}  // extern "C"
