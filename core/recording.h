#pragma once
#include <functional>

#include "core/device.h"

namespace ringtape {

// The work of a device that the calling thread records (Runtime::record), as long as this lives.
class Recording {
 public:
  explicit Recording(Device device);
  virtual ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  static Recording* current();  // of the calling thread; null: it records nothing
  Device device() const { return device_; }
  virtual void then(std::function<void()> f) = 0;  // see at_each_launch()

 private:
  const Device device_;
};

// Calls f. While the calling thread records work, f is called at each launch of it instead: after all that was recorded
// before has been put on the device, and before anything that follows.
void at_each_launch(std::function<void()> f);

}  // namespace ringtape
