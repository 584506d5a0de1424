#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "comm/store/number.h"
#include "comm/store/store.h"

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
  std::string set_once(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    const auto [it, is_new] = values_.emplace(key, value);
    if (is_new) changed_.notify_all();
    return it->second;
  }
  std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const auto find = [&] {
      return std::ranges::find_if(keys, [&](const std::string& key) { return values_.count(key) > 0; });
    };
    if (!changed_.wait_until(lock, deadline.at(), [&] { return find() != keys.end(); })) return std::nullopt;
    return Entry{*find(), values_[*find()]};
  }
  int64_t add(const std::string& key, int64_t amount) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    const int64_t sum = sum_of(key, value, amount);
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
  PrefixStore(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix) + "/") {}
  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::optional<std::string> get(const std::string& key) override { return store_->get(prefix_ + key); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return store_->set_once(prefix_ + key, value);
  }
  std::optional<Entry> wait_any(std::span<const std::string> keys, Deadline deadline) override {
    std::vector<std::string> whole;
    for (const std::string& key : keys) whole.push_back(prefix_ + key);
    auto entry = store_->wait_any(whole, deadline);
    if (entry) entry->key.erase(0, prefix_.size());
    return entry;
  }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(prefix_ + key, amount); }
  void erase(const std::string& key) override { store_->erase(prefix_ + key); }
  void will(const std::string& key, const std::string& who) override { store_->will(prefix_ + key, who); }
  std::string address() const override { return store_->address(); }

 private:
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
};

}  // namespace

std::string Store::wait(const std::string& key, Deadline deadline) {
  const auto entry = wait_any(std::span(&key, 1), deadline);
  RT_CHECK_AS(CommError, entry, "store: no rank has set '", key, "' by the deadline");
  return entry->value;
}

std::shared_ptr<Store> memory_store() { return std::make_shared<MemoryStore>(); }
std::shared_ptr<Store> prefix_store(std::shared_ptr<Store> store, std::string prefix) {
  return std::make_shared<PrefixStore>(std::move(store), std::move(prefix));
}

}  // namespace ringtape::comm
