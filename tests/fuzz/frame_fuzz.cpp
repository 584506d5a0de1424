// The frames of a store.
#include "tests/fuzz/frame_target.h"
#include "tests/fuzz/target.h"

RT_FUZZ_TARGET(input) { ringtape::test::drive_frames(reinterpret_cast<const uint8_t*>(input.data()), input.size()); }
