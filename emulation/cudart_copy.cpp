// The stand-in for libcudart: copies. Page-locked memory is read and written when the stream reaches the copy; pageable
// memory is read at the call, and the call waits for writes to it: as early and as late as CUDA permits.
#include <cstring>

#include "core/text.h"
#include "emulation/cudart.h"
#include "emulation/memory.h"
#include "emulation/report.h"

using namespace ringtape;
using namespace ringtape::emulation;

namespace {

cudaError_t wrong(const char* what, const void* p, size_t bytes, const std::string& why) {
  report("copy", {},
         concat(what, " of ", bytes, " bytes: ", why, " (", is_device(p) ? describe(p) : "host memory", ")"));
  return cudaErrorInvalidValue;
}

// Checked when the stream reaches the copy: memory that was allocated at the call may be freed, or not yet live.
bool live(const char* what, const void* p, size_t bytes) {
  if (inside_live(p, bytes)) return true;
  report("not-allocated", {},
         concat(what, " of ", bytes, " bytes when the stream comes to it: ", describe(p),
                ": freed before, or allocated in another stream without an event in between"));
  return false;
}

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  int to_device = -1, from_device = -1;  // -1: the host

  cudaError_t check() const {
    for (const bool writes : {true, false}) {
      const void* const p = writes ? to : from;
      const int device = writes ? to_device : from_device;
      const char* const name = writes ? "the destination" : "the source";
      if (device < 0 && is_device(p)) return wrong("copy", p, bytes, concat(name, " is not of the host"));
      if (device >= 0 && !is_device(p)) return wrong("copy", p, bytes, concat(name, " is not of a GPU"));
      if (device >= 0 && !owned_by(p, bytes, device))
        return wrong("copy", p, bytes, concat(name, " is not inside one buffer of cuda:", device));
      if (device < 0 && page_locked(p, 0) && !page_locked(p, bytes))
        return wrong("copy", p, bytes, concat(name, " ends behind its page-locked buffer"));
    }
    return cudaSuccess;
  }

  void run() const {
    if ((to_device >= 0 && !live("write by a copy", to, bytes)) ||
        (from_device >= 0 && !live("read by a copy", from, bytes)))
      return;
    std::memmove(to, from, bytes);
    if (from_device >= 0 && to_device >= 0) mark_copied(to, from, bytes);
    else if (to_device >= 0) mark_initialised(to, bytes);
  }
};

cudaError_t enqueue(Copy copy, cudaStream_t handle) {
  const auto stream = stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (copy.bytes == 0) return cudaSuccess;
  if (const cudaError_t status = copy.check()) return status;
  const bool reads_pageable = copy.from_device < 0 && !page_locked(copy.from, copy.bytes);
  const bool writes_pageable = copy.to_device < 0 && !page_locked(copy.to, copy.bytes);
  if (reads_pageable && !stream->capture) {
    const char* const from = static_cast<const char*>(copy.from);
    const auto staged = std::make_shared<std::vector<char>>(from, from + copy.bytes);
    copy.from = staged->data();
    put(*stream, [copy, staged] { copy.run(); });
  } else {
    put(*stream, [copy] { copy.run(); });
  }
  if (!writes_pageable || stream->capture) return cudaSuccess;
  wait_for(end_of(*stream));
  return failure();
}

// From the address: -1 for the host, the current device for unowned addresses.
int device_of(const void* p, size_t bytes) {
  if (!is_device(p)) return -1;
  for (int device = 0; device < gpu().devices; ++device)
    if (owned_by(p, bytes, device)) return device;
  return current_device();
}

cudaError_t enqueue(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  Copy copy{to, from, bytes};
  if (kind == cudaMemcpyDefault) {
    copy.to_device = device_of(to, bytes);
    copy.from_device = device_of(from, bytes);
  }
  if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) copy.to_device = current_device();
  if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) copy.from_device = current_device();
  return enqueue(copy, handle);
}

cudaError_t set(void* p, int value, size_t bytes, cudaStream_t handle) {
  const auto stream = stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (!owned_by(p, bytes, stream->device))
    return wrong("memset", p, bytes, concat("not inside one buffer of cuda:", stream->device));
  put(*stream, [=] {
    if (!live("memset", p, bytes)) return;
    std::memset(p, value, bytes);
    mark_initialised(p, bytes);
  });
  return cudaSuccess;
}

cudaError_t finish(cudaError_t status) {
  if (status != cudaSuccess) return status;
  wait_for(end_of(*stream_of(nullptr)));
  return failure();
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api_call([&] { return enqueue(to, from, bytes, kind, stream); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api_call([&] {
    if (const cudaError_t refused = refused_while_capturing()) return refused;
    return finish(enqueue(to, from, bytes, kind, nullptr));
  });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  return api_call([&] {
    if (to_device < 0 || to_device >= gpu().devices || from_device < 0 || from_device >= gpu().devices)
      return cudaErrorInvalidDevice;
    return enqueue(Copy{to, from, bytes, to_device, from_device}, stream);
  });
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  return api_call([&] { return set(p, value, bytes, stream); });
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return api_call([&] {
    if (const cudaError_t refused = refused_while_capturing()) return refused;
    return finish(set(p, value, bytes, nullptr));
  });
}

}  // extern "C"
