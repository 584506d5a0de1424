#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "emulation/emulation.h"

// The stand-in for libcudart: shared declarations. Streams are queues. Nothing in them runs before somebody waits for
// it, and then in any order that CUDA permits: as late as possible (forward), other streams first (reverse), or at
// random. So a missing event or synchronisation is visible. Every call holds one lock; the functions declared here need
// it.
namespace ringtape::emulation {

using Work = std::function<void()>;

// A node, and the indices of the nodes that it runs after.
struct GraphNode {
  Work run;
  std::vector<size_t> after;
};

// The recorded work of all participating streams, from cudaStreamBeginCapture to cudaStreamEndCapture.
struct Capture {
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  cudaStreamCaptureMode mode{};
  bool invalid = false, ended = false;
  std::vector<GraphNode> nodes;
  std::vector<void*> allocated;  // buffers that its nodes allocate and free; the graph owns the addresses
  ~Capture();                    // releases `allocated`
};

// A point in a stream: later work may start when this number of the stream's operations is complete.
struct Point {
  std::shared_ptr<CUstream_st> stream;
  uint64_t number = 0;
  bool reached() const;
};

struct Operation {
  Work run;
  std::vector<Point> after;
  double issued;  // on the host's clock
};

}  // namespace ringtape::emulation

struct CUstream_st : std::enable_shared_from_this<CUstream_st> {
  int device = 0;
  bool blocking = true;  // ordered with the default stream
  bool destroyed = false;
  uint64_t issued = 0, completed = 0;
  std::deque<ringtape::emulation::Operation> queue;
  std::shared_ptr<ringtape::emulation::Capture> capture;
  std::vector<size_t> frontier;  // nodes of the capture that the next one depends on
};

struct CUmemPoolHandle_st {
  int device = 0;
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  uint64_t threshold = 0;  // a synchronisation releases unused memory above it
};

namespace ringtape::emulation {

// Runs the body of an API function: with the lock, after the common checks. Keeps an error for cudaGetLastError, and
// counts the call of the function that calls this.
cudaError_t api_call(const std::function<cudaError_t()>& body, const char* name = __builtin_FUNCTION());
void let_others_call();  // releases the lock for a short time
int current_device();    // of the calling thread

// Streams
std::shared_ptr<CUstream_st> stream_of(
    cudaStream_t handle);  // null if there is none; 0 is the current device's default
// Appends work to the queue, to run also after the points `after`; or to the capture.
void put(CUstream_st& stream, Work work, std::vector<Point> after = {});
// Runs work until it is reached. While all that it needs waits for work that no thread has issued yet, other threads
// can issue it.
void wait_for(Point point);
void wait_for_all();                    // that can run
void run_a_little(const Point& point);  // when it is polled and not reached, so that a loop of polls ends
// A stream without a handle. Work may wait for its operations before they are issued. After close_stream() it ends with
// its last operation.
std::shared_ptr<CUstream_st> open_stream(int device);
void close_stream(CUstream_st& stream);
void pass_time(double milliseconds);       // of the fake clock, by work that runs
void pass_host_time(double milliseconds);  // of the host's, by a call; work begins when it has been issued
cudaError_t failure();  // cudaErrorLaunchFailure from a report in a stream to clear_reports(), else success
void release_streams(const Capture& capture);  // its streams no longer take part in it
inline Point end_of(CUstream_st& stream) { return {stream.shared_from_this(), stream.issued}; }

// Capture
cudaError_t refused_while_capturing();        // for calls that are unsafe in a capture: an error; ends the capture
cudaError_t refused_on(CUstream_st& stream);  // for calls that cannot be recorded
void invalidate_captures_of(int device);
bool capturing(int device);

// Memory
bool owned_by(const void* p, size_t bytes, int device);  // inside one allocation of that device that is not freed
bool page_locked(const void* p, size_t bytes);           // inside one buffer of cudaHostAlloc
void trim_pools(int device);                             // down to their thresholds

// "devices=1 memory=256M sm=90"; throws UsageError.
Gpu parsed_gpu(std::string_view text);

// The number of buffers of device and page-locked memory that are not freed: tests compare it before and after.
size_t buffers_in_use();

}  // namespace ringtape::emulation
