#include "train/run/version.h"

// CMake defines both for this file only: a new revision recompiles nothing else.
namespace ringtape {

const char* const kVersion = RINGTAPE_VERSION;
const char* const kRevision = RINGTAPE_REVISION;

}  // namespace ringtape
