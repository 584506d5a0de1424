#pragma once
#include <vector>

#include "comm/base/fd.h"
#include "comm/transport.h"

namespace ringtape::comm {

// Connects every two ranks of a context by so many sockets, the same number on all: [rank][0 ... sockets), none to
// itself. 0: 1 where all ranks are on one host, else 4. Ranks on one host meet at the loopback address; others at the
// address by which they reach the store. Both ends of each connection prove that they know a secret that is in the
// store alone (HMAC-SHA256 of numbers that both drew).
std::vector<std::vector<Fd>> connect_mesh(const Context& context, int sockets, const Deadline& deadline);

}  // namespace ringtape::comm
