// The checker of checked executables. Their kernels are compiled with -fsanitize=thread,alignment,bounds, so that the
// compiler calls the functions below at memory accesses. The sanitizers' own libraries, which do not know blocks and
// barriers, are not linked. Host code may be compiled like this, too: there the functions only do what the program
// needs.
#include <cstdio>

#include "core/text.h"
#include "emulation/shadow.h"
#include "emulation/traffic.h"

namespace ringtape::emulation {
namespace {

Shadow& shadow() {
  static Shadow& s = *new Shadow;
  return s;
}
Shadow* const the_shadow = [] {
  checker = &shadow();
  return &shadow();
}();

template <size_t bytes, AccessKind kind>
inline __attribute__((always_inline)) void access(const void* p, const void* pc) {
  if (!in_kernel) return;
  // The compiler clears an array of 16 bytes at once, which Arm aligns to 8. What a type needs is checked below.
  constexpr size_t aligned = bytes < 8 ? bytes : 8;
  if (reinterpret_cast<uintptr_t>(p) % aligned) [[unlikely]]
    the_shadow->misaligned(p, pc, kind == AccessKind::read ? "read" : "write");
  if (traffic) [[unlikely]]
    saw_access(p, bytes);
  the_shadow->access<bytes, kind>(p, pc);
}

inline void access_range(const void* p, size_t bytes, AccessKind kind, const void* pc) {
  if (!in_kernel) return;
  if (traffic) saw_access(p, bytes);
  the_shadow->access(p, bytes, kind, pc);
}

}  // namespace
}  // namespace ringtape::emulation

// NOLINTBEGIN: names of the compiler
#define RT_READ ringtape::emulation::AccessKind::read
#define RT_WRITE ringtape::emulation::AccessKind::write
#define RT_PC __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

#define RT_SIZE(n)                                                                                             \
  void __tsan_read##n(void* p) { ringtape::emulation::access<n, RT_READ>(p, RT_PC); }                          \
  void __tsan_write##n(void* p) { ringtape::emulation::access<n, RT_WRITE>(p, RT_PC); }                        \
  void __tsan_volatile_read##n(void* p) { ringtape::emulation::access<n, RT_READ>(p, RT_PC); }                 \
  void __tsan_volatile_write##n(void* p) { ringtape::emulation::access<n, RT_WRITE>(p, RT_PC); }               \
  void __tsan_unaligned_read##n(void* p) { ringtape::emulation::access_range(p, n, RT_READ, RT_PC); }          \
  void __tsan_unaligned_write##n(void* p) { ringtape::emulation::access_range(p, n, RT_WRITE, RT_PC); }        \
  void __tsan_unaligned_volatile_read##n(void* p) { ringtape::emulation::access_range(p, n, RT_READ, RT_PC); } \
  void __tsan_unaligned_volatile_write##n(void* p) { ringtape::emulation::access_range(p, n, RT_WRITE, RT_PC); }
RT_SIZE(1) RT_SIZE(2) RT_SIZE(4) RT_SIZE(8) RT_SIZE(16) void __tsan_read_range(void* p, size_t n) {
  ringtape::emulation::access_range(p, n, RT_READ, RT_PC);
}
void __tsan_write_range(void* p, size_t n) { ringtape::emulation::access_range(p, n, RT_WRITE, RT_PC); }

// std::atomic and similar, which kernels do not use.
#define RT_FETCH(n, T, op) \
  T __tsan_atomic##n##_fetch_##op(volatile T* p, T x, int) { return __atomic_fetch_##op(p, x, __ATOMIC_SEQ_CST); }
#define RT_ATOMIC(n, T)                                                                                          \
  T __tsan_atomic##n##_load(const volatile T* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }           \
  void __tsan_atomic##n##_store(volatile T* p, T x, int) { __atomic_store_n(p, x, __ATOMIC_SEQ_CST); }           \
  T __tsan_atomic##n##_exchange(volatile T* p, T x, int) { return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST); } \
  int __tsan_atomic##n##_compare_exchange_strong(volatile T* p, T* expected, T x, int, int) {                    \
    return __atomic_compare_exchange_n(p, expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);               \
  }                                                                                                              \
  int __tsan_atomic##n##_compare_exchange_weak(volatile T* p, T* expected, T x, int, int) {                      \
    return __atomic_compare_exchange_n(p, expected, x, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                \
  }                                                                                                              \
  RT_FETCH(n, T, add)                                                                                            \
  RT_FETCH(n, T, sub) RT_FETCH(n, T, and) RT_FETCH(n, T, or) RT_FETCH(n, T, xor) RT_FETCH(n, T, nand)
RT_ATOMIC(8, uint8_t)
RT_ATOMIC(16, uint16_t) RT_ATOMIC(32, uint32_t) RT_ATOMIC(64, uint64_t) void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

// The arguments of UndefinedBehaviorSanitizer's checks.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
struct Type {
  uint16_t kind, info;
  char name[1];
};
struct TypeMismatch {
  SourceLocation location;
  const Type* type;
  uint8_t log_alignment, kind;
};
struct OutOfBounds {
  SourceLocation location;
  const Type* array;
  const Type* index;
};
struct Overflow {
  SourceLocation location;
  const Type* type;
};
struct Shift {
  SourceLocation location;
  const Type* shifted;
  const Type* by;
};

void __ubsan_handle_type_mismatch_v1(const TypeMismatch* what, const void* p) {
  using namespace ringtape::emulation;
  if (!in_kernel) return;
  const HostCode host;
  the_shadow->misaligned(p, Place{what->location.file, int(what->location.line)}, what->type->name);
}
void __ubsan_handle_out_of_bounds(const OutOfBounds* what, uintptr_t index) {
  using namespace ringtape::emulation;
  if (!in_kernel) return;
  const HostCode host;
  report("out-of-bounds", Place{what->location.file, int(what->location.line)},
         ringtape::concat("index ", int64_t(index), " of an array of type ", what->array->name));
}
void __ubsan_handle_divrem_overflow(const Overflow* data, uintptr_t, uintptr_t by) {
  using namespace ringtape::emulation;
  if (!in_kernel) return;
  const Place place{data->location.file, int(data->location.line)};
  const HostCode host;
  if (by == 0) {
    report("division-by-zero", place, "integer division by zero");
    abandon();
  }
  report("integer-overflow", place, ringtape::concat("a quotient of type ", data->type->name));
}
void __ubsan_handle_divrem_overflow_abort(const Overflow* data, uintptr_t value, uintptr_t by) {
  __ubsan_handle_divrem_overflow(data, value, by);
}
#define RT_OVERFLOW(op, what)                                                        \
  void __ubsan_handle_##op##_overflow(const Overflow* data) {                        \
    using namespace ringtape::emulation;                                             \
    if (!in_kernel) return;                                                          \
    const HostCode host;                                                             \
    report("integer-overflow", Place{data->location.file, int(data->location.line)}, \
           ringtape::concat(what, data->type->name));                                \
  }                                                                                  \
  void __ubsan_handle_##op##_overflow_abort(const Overflow* data) { __ubsan_handle_##op##_overflow(data); }
RT_OVERFLOW(add, "a sum of type ")
RT_OVERFLOW(sub, "a difference of type ")
RT_OVERFLOW(mul, "a product of type ")
RT_OVERFLOW(negate, "a negation of type ")
void __ubsan_handle_shift_out_of_bounds(const Shift* data, uintptr_t, uintptr_t by) {
  using namespace ringtape::emulation;
  if (!in_kernel) return;
  const HostCode host;
  report("shift", Place{data->location.file, int(data->location.line)},
         ringtape::concat(data->shifted->name, " shifted by ", int64_t(by)));
}
void __ubsan_handle_shift_out_of_bounds_abort(const Shift* data, uintptr_t value, uintptr_t by) {
  __ubsan_handle_shift_out_of_bounds(data, value, by);
}
void __ubsan_handle_type_mismatch_v1_abort(const TypeMismatch* what, const void* p) {
  __ubsan_handle_type_mismatch_v1(what, p);
}
void __ubsan_handle_out_of_bounds_abort(const OutOfBounds* what, uintptr_t index) {
  __ubsan_handle_out_of_bounds(what, index);
}

}  // extern "C"
// NOLINTEND
