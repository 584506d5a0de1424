#include "comm/transport/unique_devices.h"

#include <unistd.h>

#include <fstream>
#include <map>

namespace ringtape::comm {

void check_unique_devices(const Context& context, const std::string& host, const std::string& device) {
  const Deadline deadline(context.timeout);
  const auto key = [](int rank, const char* what) { return concat("device/", rank, "/", what); };
  context.store->set(key(context.rank, "pid"), std::to_string(getpid()));
  context.store->set(key(context.rank, "name"), device);
  context.store->set(key(context.rank, "host"), host);
  std::map<std::string, int> first;  // rank by host and device
  std::string table;
  int a = -1, b = -1;
  for (int r = 0; r < context.size; ++r) {
    const std::string on = context.store->wait(key(r, "host"), deadline),
                      name = context.store->wait(key(r, "name"), deadline);
    table += concat("\n  rank ", r, "  pid ", context.store->wait(key(r, "pid"), deadline), "  ", name, "  host ", on);
    const auto [known, added] = first.emplace(on + " " + name, r);
    if (!added && a < 0) a = known->second, b = r;
  }
  RT_CHECK_AS(CommError, a < 0, "ranks ", a, " and ", b,
              " have the same GPU, but NCCL needs one GPU per rank; give every rank its own "
              "(--gpu-ids, CUDA_VISIBLE_DEVICES, or fewer ranks per host) or choose another transport:",
              table);
}

std::string machine_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

}  // namespace ringtape::comm
