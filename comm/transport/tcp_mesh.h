#pragma once
#include <vector>

#include "comm/base/fd.h"
#include "comm/transport.h"

namespace ringtape::comm {

// Connects every two ranks of a context by `sockets` sockets, the same number on all ranks: [rank][0 ... sockets), none
// to itself. 0 means 1 if all ranks are on one host, else 4. Ranks on one host use the loopback address; others use the
// address with which they reach the store. Both ends of each connection prove that they know a secret that is only in
// the store (HMAC-SHA256 of random numbers from both ends).
std::vector<std::vector<Fd>> connect_mesh(const Context& context, int sockets, const Deadline& deadline);

}  // namespace ringtape::comm
