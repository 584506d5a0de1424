#include <condition_variable>
#include <map>
#include <mutex>

#include "comm/store/store.h"
#include "core/check.h"

namespace ringtape::comm {

namespace {

class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::optional<std::string> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto it = values_.find(key);
    return it == values_.end() ? std::nullopt : std::optional(it->second);
  }
  std::string wait(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    RT_CHECK_AS(CommError, changed_.wait_until(lock, deadline.at(), [&] { return values_.count(key) > 0; }),
                "store: no rank has set '", key, "' by the deadline");
    return values_[key];
  }
  int64_t add(const std::string& key, int64_t amount) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    const int64_t sum = (value.empty() ? 0 : std::stoll(value)) + amount;
    value = std::to_string(sum);
    changed_.notify_all();
    return sum;
  }
  void erase(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

class PrefixStore : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, std::string prefix) : store_(std::move(store)), prefix_(std::move(prefix) + "/") {}
  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::optional<std::string> get(const std::string& key) override { return store_->get(prefix_ + key); }
  std::string wait(const std::string& key, Deadline deadline) override { return store_->wait(prefix_ + key, deadline); }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(prefix_ + key, amount); }
  void erase(const std::string& key) override { store_->erase(prefix_ + key); }
  std::string address() const override { return store_->address(); }

 private:
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
};

}  // namespace

std::shared_ptr<Store> memory_store() { return std::make_shared<MemoryStore>(); }
std::shared_ptr<Store> prefix_store(std::shared_ptr<Store> store, std::string prefix) {
  return std::make_shared<PrefixStore>(std::move(store), std::move(prefix));
}

}  // namespace ringtape::comm
