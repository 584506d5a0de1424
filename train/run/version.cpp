#include "train/run/version.h"

// CMake defines them for this file only: a new revision recompiles nothing else.
namespace ringtape {

const char* const kVersion = RINGTAPE_VERSION;
const char* const kRevision = RINGTAPE_REVISION;
const char* const kTomlVersion = RINGTAPE_TOML_VERSION;

}  // namespace ringtape
