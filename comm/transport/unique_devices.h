#pragma once
#include "comm/transport.h"

namespace ringtape::comm {

// Throws CommError on every rank, with a table of rank, process and device, if two ranks have the same device. `host`
// tells machines apart, `device` the devices of one. Met by all ranks of the group, through its store.
void check_unique_devices(const Context& context, const std::string& host, const std::string& device);

// Which machine this is, since its last start: the same in all its containers.
std::string machine_id();

}  // namespace ringtape::comm
