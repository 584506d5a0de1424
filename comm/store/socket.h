#pragma once
#include <string>
#include <vector>

#include "comm/base/deadline.h"
#include "comm/base/fd.h"

namespace ringtape::comm {

// Sockets, all close-on-exec and non-blocking. An empty host means every interface, port 0 any free port. Throws
// CommError.
Fd listen_on(const std::string& host, int port);
int port_of(const Fd& socket);              // of this side
std::string own_address(const Fd& socket);  // of this side, in digits

// One attempt. Throws CommError with the reason.
Fd connect_to(const std::string& host, int port, Deadline deadline);
// Whether nothing listens there; false also if this cannot be found out.
bool refuses(const std::string& host, int port, Deadline deadline);
// Those of the addresses, "HOST PORT" in digits, all tried at once, from which no answer comes; a refusal is one.
std::vector<std::string> without_answer(const std::vector<std::string>& addresses, Deadline deadline);

// Takes over an existing socket.
Fd adopt(int fd);

}  // namespace ringtape::comm
