#include "train/run/version.h"

// Both come from CMake, for this file alone: a new revision compiles nothing else.
namespace ringtape {

const char* const kVersion = RINGTAPE_VERSION;
const char* const kRevision = RINGTAPE_REVISION;

}  // namespace ringtape
