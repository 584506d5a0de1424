#pragma once
#include <cstdint>

namespace ringtape {

// The most memory that this process has had at a time, in bytes: tensors, images, code and all else, with the pages of
// shared memory that it has touched (VmHWM of Linux). 0 where the system does not say.
int64_t peak_process_bytes();

}  // namespace ringtape
