#include "core/storage.h"

#include "core/runtime.h"

namespace ringtape {

Storage::Storage(size_t bytes, Device device)
    : deallocate_(runtime(device).deallocate), data_(runtime(device).allocate(bytes, device.index)), bytes_(bytes),
      device_(device) {}

Storage::~Storage() {
  if (deallocate_) deallocate_(data_, bytes_, device_.index);
}

}  // namespace ringtape
