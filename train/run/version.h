#pragma once

namespace ringtape {

extern const char* const kVersion;      // "0.1.0"
extern const char* const kRevision;     // git describe at configuration time, or "unknown"
extern const char* const kTomlVersion;  // of toml++

}  // namespace ringtape
