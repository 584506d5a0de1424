#pragma once
#include <string_view>

#include "comm/base/fd.h"

namespace ringtape::comm {

struct PipeEnds {
  Fd read, write;
};
PipeEnds make_pipe();                        // closed on exec; throws IoError
bool write_all(int fd, std::string_view s);  // false if writing fails; waits even if fd is non-blocking

}  // namespace ringtape::comm
