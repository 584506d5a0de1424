#include "comm/health/failure.h"

namespace ringtape::comm {

void Failure::raise(const std::string& cause) {
  const auto others = peers();  // released after the lock, because its destructor may wait for another raise()
  const std::lock_guard lock(mutex_);
  if (raised_) return;
  const std::string agreed = others ? others->agree(cause) : cause;
  ours_.store(agreed == cause, std::memory_order_release);
  publish(agreed);
}

void Failure::raise_agreed(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (!raised_) publish(cause);
}

void Failure::publish(const std::string& cause) {
  cause_ = cause;
  raised_.store(true, std::memory_order_release);
  for (const auto& [id, f] : listeners_) f(cause_);
  listeners_.clear();
}

void Failure::set_peers(std::weak_ptr<Peers> peers) {
  const std::lock_guard lock(mutex_);
  peers_ = std::move(peers);
}

std::shared_ptr<Failure::Peers> Failure::peers() const {
  const std::lock_guard lock(mutex_);
  return peers_.lock();
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
