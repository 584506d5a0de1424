#pragma once
#include <cstddef>
#include <string>

// The memory of the emulated GPUs: one range of addresses, of which buffers are parts with nothing in between for 256 bytes
// and more. Addresses are used again only when all have been used, so that what reads a freed buffer is found out. The
// caller serialises the calls.
namespace ringtape::emulation {

inline constexpr size_t kRedzone = 256;    // bytes around a buffer that belong to nobody; also its alignment
inline constexpr int kPoison = 0xFF;       // a byte of memory that nobody has written: as floats NaN, as integers -1

// A buffer has an address from reserve() to release(), and content from make_live() to kill() in between: those are the
// points that a stream reaches, possibly later and more than once.
void* reserve(size_t bytes, size_t alignment = kRedzone);  // nullptr if there are not so many in one piece
void make_live(void* buffer);              // poisoned, uninitialised
void kill(void* buffer);                   // the content is gone
void release(void* buffer);                // live or not

// A live buffer that begins at a page, with the same bytes in several processes: the file that has them, which the caller closes, and a
// live buffer of such a file's bytes. -1 and nullptr: the system refuses.
int share(void* buffer);
void* adopt(int file, size_t bytes);
void disown(void* buffer);                 // one that was adopted: its address is free, the bytes stay

bool is_device(const void* p);             // an address of the GPUs' memory, buffer or not
bool inside_live(const void* p, size_t bytes);
size_t size_of_buffer(const void* buffer); // as reserved

// Which bytes have been written; kept in checked executables only, in others all bytes are.
void mark_initialised(const void* p, size_t bytes);
void mark_copied(void* to, const void* from, size_t bytes);  // `to` is initialised where `from` is
bool initialised(const void* p, size_t bytes);

std::string describe(const void* p);       // "byte 400 of a buffer of 400 bytes"

// Reports writes just past a live buffer since the last call. (Checked and ASan executables see them as they happen.)
void verify_redzones();

}  // namespace ringtape::emulation
