#pragma once
#include "core/runtime.h"

// The part of cuda::runtime that sends data to a device while the host prepares more.
namespace ringtape::cuda {

std::shared_ptr<HostBuffer> host_buffer(size_t bytes, int index);  // page-locked
std::shared_ptr<Inbox> inbox(size_t bytes, int index);  // filled by the copy stream, read by the compute stream

}  // namespace ringtape::cuda
