#include "comm/base/host_name.h"

#include <unistd.h>

namespace ringtape::comm {

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace ringtape::comm
