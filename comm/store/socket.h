#pragma once
#include <string>

#include "comm/base/deadline.h"
#include "comm/base/fd.h"

namespace ringtape::comm {

// Sockets, all close-on-exec and not blocking. An empty host is every interface. Port 0
// is any that is free. Throws CommError.
Fd listen_on(const std::string& host, int port);
int port_of(const Fd& socket);             // of this side
std::string own_address(const Fd& socket);  // of this side, in digits

// One attempt. Throws CommError with the reason.
Fd connect_to(const std::string& host, int port, Deadline deadline);
// Nothing listens there; false also if that cannot be known.
bool refuses(const std::string& host, int port, Deadline deadline);

// Takes over a socket that is there already.
Fd adopt(int fd);

}  // namespace ringtape::comm
