#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <string>

// The memory of the emulated GPUs: one range of addresses that contains the buffers, with gaps of at least 256 bytes.
// Addresses are reused only after all have been used, so that reads of freed buffers are detected. The caller
// serialises the calls.
namespace ringtape::emulation {

inline constexpr size_t kRedzone = 256;  // unallocated bytes around a buffer; also its alignment
inline constexpr int kPoison = 0xFF;     // the value of unwritten bytes: NaN as floats, -1 as integers

// A buffer has an address from reserve() to release(), and content between make_live() and kill(). A stream reaches
// these two points possibly later and more than once.
void* reserve(size_t bytes, size_t alignment = kRedzone);  // nullptr if there is no gap of this size
void make_live(void* buffer);                              // poisoned, uninitialised
void kill(void* buffer);                                   // drops the content
void release(void* buffer);                                // live or not

// share(): turns a live buffer that starts at a page into memory of a file, whose descriptor it returns; the caller
// closes it. adopt(): a live buffer with the bytes of such a file, in this or another process. -1 and nullptr: the
// system refuses.
int share(void* buffer);
void* adopt(int file, size_t bytes);
void disown(void* buffer);  // of an adopted buffer: frees its address, keeps the bytes

bool is_device(const void* p);  // an address of the GPUs' memory, buffer or not
bool inside_live(const void* p, size_t bytes);
size_t size_of_buffer(const void* buffer);  // as reserved

// Which bytes have been written. Recorded only in checked executables; in others all bytes count as written.
void mark_initialised(const void* p, size_t bytes);
void mark_copied(void* to, const void* from, size_t bytes);  // `to` is initialised where `from` is
bool initialised(const void* p, size_t bytes);

// The bytes of all live buffers, by address; nothing if they are more than `most`, or if other processes have some.
using Contents = std::map<char*, std::string>;
std::optional<Contents> contents(size_t most);
void restore(const Contents& contents);

std::string describe(const void* p);  // "byte 400 of a buffer of 400 bytes"

// Reports writes just past a live buffer since the last call. (Checked and ASan executables detect them at once.)
void verify_redzones();

}  // namespace ringtape::emulation
