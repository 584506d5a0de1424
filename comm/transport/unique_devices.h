#pragma once
#include "comm/transport.h"

namespace ringtape::comm {

// Throws CommError on every rank, with a table of rank, process and device, if two ranks have the same device. `host`
// identifies a machine, `device` a device on it. All ranks of the group must call it; it uses the group's store.
void check_unique_devices(const Context& context, const std::string& host, const std::string& device);

// An identifier of this machine since its last boot, the same in all its containers.
std::string machine_id();

}  // namespace ringtape::comm
