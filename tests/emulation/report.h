#pragma once
#include <cstdint>
#include <string>

// What is found wrong while kernels are emulated (read it through emulation.h).
namespace ringtape::emulation {

// A line of source. As a default argument Place::here() is that of the call.
struct Place {
  const char* file = nullptr;
  int line = 0;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  bool operator==(const Place& other) const {
    return line == other.line && (file == other.file || (file && other.file && __builtin_strcmp(file, other.file) == 0));
  }
};

// A place known as a line, as the address of an instruction (turned into a line only if it is reported), or not at all.
struct Where {
  Place place;
  const void* pc = nullptr;
  Where() = default;
  Where(Place p) : place(p) {}
  Where(const void* instruction) : pc(instruction) {}
};

// Adds "kind: kernel k, block (x,y,z), thread (x,y,z): text at FILE:LINE, other_text at FILE:LINE", in which kernel, block and
// thread are those that run. The same kind at the same place is kept once but counted each time.
void report(const char* kind, Where where, const std::string& text, Where other = {}, const std::string& other_text = "");

// Whether that is already known; counts it if so. Saves making up the text.
bool reported_again(const char* kind, const void* pc);

// How often report() was called. A grid or copy that made it grow has failed.
uint64_t report_count();

}  // namespace ringtape::emulation
