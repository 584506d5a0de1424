// TIFF files.
#include "tests/fuzz/image_target.h"

RT_FUZZ_TARGET(input) { ringtape::test::drive_image(input); }
