#pragma once
#include <cstddef>
#include <functional>
#include <vector>

// Arguments of kernels in a recorded graph (graph.h) that differ from launch to launch: they are in one buffer on the
// device, which one copy writes before each launch.
namespace ringtape::cuda {

class LiveArguments {
 public:
  explicit LiveArguments(int index);  // takes memory: before the recording, whose own memory is used again in it
  ~LiveArguments();                   // the graph's work must be done
  LiveArguments(const LiveArguments&) = delete;
  LiveArguments& operator=(const LiveArguments&) = delete;

  // Those of the graph that the calling thread records on the device; null: none.
  static LiveArguments* recorded(int index);
  void start_recording();
  void stop_recording() noexcept;

  // The place of an argument on the device; `write` puts its `bytes` to where it is told, before each launch. Throws
  // DeviceError if there are too many.
  const void* add(size_t bytes, std::function<void(void* to)> write);
  void send() const;  // writes all, and copies them on the compute stream; the host does not wait

 private:
  struct Argument {
    size_t at;
    std::function<void(void* to)> write;
  };
  int index_;
  void* const data_;
  size_t bytes_ = 0;
  std::vector<Argument> arguments_;
};

}  // namespace ringtape::cuda
