// The frames of a store under libFuzzer: tests/fuzz/run.sh [seconds]
#include "tests/fuzz/frame_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ringtape::test::drive_frames(data, size);
  return 0;
}
