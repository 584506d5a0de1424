#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/base/deadline.h"
#include "comm/store/store.h"

namespace ringtape::comm {

// Whether processes of several hosts can send to each other. All reach the store, which therefore cannot tell.
class Contact {
 public:
  virtual ~Contact() = default;
  // Where the others can try to reach this process; from then on it is there. Empty: it has no network.
  virtual std::string address() = 0;
  // Those of the addresses, all tried at once, that give no answer in time: nothing that is sent comes there, or back.
  virtual std::vector<std::string> silent(const std::vector<std::string>& addresses, Seconds patience) = 0;
};

// By a port that is opened once an address is asked for. A process that hangs answers, too: its kernel does.
std::shared_ptr<Contact> tcp_contact(std::shared_ptr<Store> store);

}  // namespace ringtape::comm
