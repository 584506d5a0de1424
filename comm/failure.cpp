#include "comm/failure.h"

#include <algorithm>

namespace ringtape::comm {

void Failure::raise(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (raised_) return;
  cause_ = cause;
  raised_.store(true, std::memory_order_release);
  for (const auto& [id, f] : listeners_) f(cause_);
  listeners_.clear();
}

std::string Failure::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

int Failure::on_raise(std::function<void(const std::string&)> f) {
  const std::lock_guard lock(mutex_);
  if (raised_) return f(cause_), 0;
  listeners_.emplace_back(next_, std::move(f));
  return next_++;
}

void Failure::remove(int listener) {
  const std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [&](const auto& entry) { return entry.first == listener; });
}

}  // namespace ringtape::comm
