// The stand-in for libcudart: names and texts of errors, as in the toolkit.
#include <cuda_runtime_api.h>

namespace {

struct ErrorText {
  cudaError_t code;
  const char *name, *text;
};
#define RT_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    RT_ERROR(cudaSuccess, "no error"),
    RT_ERROR(cudaErrorInvalidValue, "invalid argument"),
    RT_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    RT_ERROR(cudaErrorInitializationError, "initialization error"),
    RT_ERROR(cudaErrorCudartUnloading, "driver shutting down"),
    RT_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    RT_ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    RT_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    RT_ERROR(cudaErrorInsufficientDriver,
             "this build emulates CUDA for tests, without a driver; -DRINGTAPE_CUDA=ON is for GPUs"),
    RT_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    RT_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    RT_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    RT_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    RT_ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    RT_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    RT_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    RT_ERROR(cudaErrorNotReady, "device not ready"),
    RT_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    RT_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    RT_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    RT_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    RT_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    RT_ERROR(cudaErrorNotSupported, "operation not supported"),
    RT_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    RT_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    RT_ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    RT_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    RT_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    RT_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    RT_ERROR(cudaErrorStreamCaptureImplicit,
             "operation would make the legacy stream depend on a capturing blocking stream"),
    RT_ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    RT_ERROR(cudaErrorStreamCaptureWrongThread,
             "attempt to terminate a thread-local capture sequence from another thread"),
    RT_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef RT_ERROR

const ErrorText* find(cudaError_t code) {
  for (const ErrorText& e : kErrors)
    if (e.code == code) return &e;
  return nullptr;
}

}  // namespace

extern "C" {
const char* cudaGetErrorName(cudaError_t code) {
  const ErrorText* const e = find(code);
  return e ? e->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t code) {
  const ErrorText* const e = find(code);
  return e ? e->text : "unrecognized error code";
}
}
