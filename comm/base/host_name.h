#pragma once
#include <string>

namespace ringtape::comm {

std::string host_name();  // of this machine, for messages; empty if the system does not say it

}  // namespace ringtape::comm
