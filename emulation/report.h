#pragma once
#include <cstdint>
#include <string>

// Records errors that are found while kernels are emulated (read them through emulation.h).
namespace ringtape::emulation {

// A line of source. As a default argument Place::here() is the line of the call.
struct Place {
  const char* file = nullptr;
  int line = 0;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  bool operator==(const Place& other) const {
    return line == other.line &&
           (file == other.file || (file && other.file && __builtin_strcmp(file, other.file) == 0));
  }
};

// A place given by a line, by the address of an instruction (converted to a line only if reported), or unknown.
struct Where {
  Place place;
  const void* pc = nullptr;
  Where() = default;
  Where(Place p) : place(p) {}
  Where(const void* instruction) : pc(instruction) {}
};

// Adds "kind: kernel k, block (x,y,z), thread (x,y,z): text at FILE:LINE, other_text at FILE:LINE", where kernel, block
// and thread are the running ones. The same kind at the same place is stored once but counted each time.
void report(const char* kind, Where where, const std::string& text, Where other = {},
            const std::string& other_text = "");

// Whether that was reported before; counts it if so. Saves composing the text.
bool reported_again(const char* kind, const void* pc);

// The number of calls of report(). A grid or copy that increased it has failed.
uint64_t report_count();

}  // namespace ringtape::emulation
