#include "comm/job/hub.h"

#include <vector>

#include "comm/health/activity.h"
#include "core/limits.h"

namespace ringtape::comm {

const std::string kQuestion = "hub/question";  // the rank that asks all others what they are doing
static const Seconds kAnswerTimeout{1};        // how long it waits for the answers
static std::string answer_key(int rank) { return concat("hub/answer/", rank); }
static std::string left_key(int rank) { return concat("hub/left/", rank); }

Hub::Hub(std::shared_ptr<Store> store, std::shared_ptr<Failure> failure, int rank, int size, std::string self,
         std::function<void()> changed)
    : store_(std::move(store)), failure_(std::move(failure)), rank_(rank), size_(size), self_(std::move(self)),
      left_(left_key(rank)), changed_(std::move(changed)) {}

std::shared_ptr<Hub> Hub::open(std::shared_ptr<Store> store, std::shared_ptr<Failure> failure, int rank, int size,
                               const std::string& self, std::function<void()> changed) {
  store->will(kFailureKey, self);
  const std::shared_ptr<Hub> hub(new Hub(std::move(store), std::move(failure), rank, size, self, std::move(changed)));
  hub->failure_->set_peers(hub);
  hub->watcher_ = start_thread("the watch over the other ranks", [hub = hub.get()] { hub->watch(); });
  return hub;
}

Hub::~Hub() {
  try {
    if (std::uncaught_exceptions() > exceptions_)
      store_->set_once(kFailureKey, self_ + " failed with an exception; see its own output");
    store_->set(left_, "1");    // wakes the watcher, too
  } catch (const CommError&) {  // the store is lost; the watcher notices this too
  }
  if (watcher_.joinable()) watcher_.join();
}

void Hub::watch() {
  bool answered = false, changes = changed_ != nullptr;
  try {
    for (;;) {
      std::vector<std::string> keys = {kFailureKey, left_};
      if (!answered) keys.push_back(kQuestion);
      if (changes) keys.push_back(kChangeKey);
      const auto entry = store_->wait_any(keys, Deadline(Seconds(1e8)));
      if (!entry) continue;
      if (entry->key == left_) return;
      if (entry->key == kFailureKey) return failure_->raise_agreed(entry->value);
      if (entry->key == kChangeKey) {
        changes = false;
        changed_();
        continue;
      }
      store_->set(answer_key(rank_), Activity::process().rows(failure_.get(), rank_));
      answered = true;
    }
  } catch (const StoreClosed&) {  // the host has finished; ranks that still need the store will notice
  } catch (const std::exception& e) {
    failure_->raise_agreed(e.what());
  }
}

std::string Hub::agree(const std::string& cause) {
  try {
    return store_->set_once(kFailureKey, cause);
  } catch (const StoreClosed&) {  // no process is left to agree with
    return cause;
  } catch (const CommError& e) {
    // The store was lost earlier, for all ranks. The first rank that notices this ends, and others may notice its end
    // first.
    return e.what();
  }
}

std::optional<std::string> Hub::activities() {
  try {
    if (store_->set_once(kQuestion, std::to_string(rank_)) != std::to_string(rank_)) return std::nullopt;
    std::string rows;
    const Deadline deadline(kAnswerTimeout);
    for (int r = 0; r < size_; ++r) {
      const std::string keys[] = {answer_key(r), left_key(r), kFailureKey};
      auto entry = store_->wait_any(keys, deadline);
      for (const std::string& key : keys)  // the deadline may have passed while waiting for an earlier rank
        if (entry) break;
        else if (auto value = store_->get(key)) entry = Store::Entry{key, std::move(*value)};
      if (entry && entry->key == kFailureKey) return std::nullopt;
      if (!entry) rows += concat(r, "\t?\t?\t?\tno answer within ", kAnswerTimeout.count(), " s\n");
      else if (entry->key == left_key(r)) rows += concat(r, "\t?\t?\t?\thas left the job\n");
      else rows += entry->value;
    }
    return rows;
  } catch (const CommError&) {
    return std::nullopt;
  }
}

}  // namespace ringtape::comm
