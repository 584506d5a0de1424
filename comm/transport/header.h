#pragma once
#include "comm/transport.h"

namespace ringtape::comm {

// The header of a message, between ranks that run the same program.
struct alignas(64) MessageHeader {
  Operation operation;
  uint64_t bytes = 0;
  int64_t place = -1;  // shm: where the bytes are in the sender's memory; -1: they follow
};
static_assert(sizeof(MessageHeader) == 64);

inline bool same_call(const Operation& a, const Operation& b) {
  return a.sequence == b.sequence && a.fingerprint() == b.fingerprint();
}

// Throws mismatch() unless the message belongs to this rank's operation and has the size that it expects.
inline void check_header(Transport& transport, int peer, const MessageHeader& header, size_t bytes) {
  if (!same_call(header.operation, transport.operation()) || header.bytes != bytes) [[unlikely]]
    mismatch(transport, peer, header.operation);
}

}  // namespace ringtape::comm
