#include "comm/job/contact.h"

#include <sys/socket.h>

#include <utility>

#include "comm/store/socket.h"
#include "comm/transport/host.h"

namespace ringtape::comm {

namespace {

class TcpContact : public Contact {
 public:
  explicit TcpContact(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  std::string address() override {
    if (address_.empty()) address_ = outer_address(*store_);
    if (!listener_ && !address_.empty()) listener_ = listen_on(address_, 0);
    return listener_ ? concat(address_, ' ', port_of(listener_)) : "";
  }
  std::vector<std::string> silent(const std::vector<std::string>& addresses, Seconds patience) override {
    while (listener_ && Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC))) {  // room for later ones
    }
    return without_answer(addresses, Deadline(patience));
  }

 private:
  const std::shared_ptr<Store> store_;
  std::string address_;
  Fd listener_;
};

}  // namespace

std::shared_ptr<Contact> tcp_contact(std::shared_ptr<Store> store) {
  return std::make_shared<TcpContact>(std::move(store));
}

}  // namespace ringtape::comm
