#include "comm/transport/call_log.h"

#include <cstring>

namespace ringtape::comm {

void CallLog::add(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  calls_[operation.sequence % kCalls] = operation;
  last_ = operation.sequence;
}

void CallLog::look(bool late) {
  Store& store = *context_.store;
  if (late && !announced_) store.set(kLate, "");
  announced_ = announced_ || late;
  if (!announced_ && !store.get(kLate)) return;
  std::unique_lock lock(mutex_);
  const std::array<Operation, kCalls> ours = calls_;
  const uint64_t last = last_;
  lock.unlock();
  if (context_.rank == 0) {
    if (last != published_) store.set(kCallsKey, std::string(reinterpret_cast<const char*>(ours.data()), sizeof ours));
    published_ = last;
    return;
  }
  const auto known = store.get(kCallsKey);
  if (!known) return;
  std::array<Operation, kCalls> theirs;
  RT_CHECK_AS(CommError, known->size() == sizeof theirs, "rank 0 published ", known->size(),
              " bytes of calls, expected ", sizeof theirs, "; all ranks must run the same program");
  std::memcpy(theirs.data(), known->data(), sizeof theirs);
  const Operation* first = nullptr;  // the earliest different one
  for (const Operation& o : ours) {
    const Operation& other = theirs[o.sequence % kCalls];
    if (o.sequence > 0 && o.sequence == other.sequence && o.fingerprint() != other.fingerprint() &&
        (!first || o.sequence < first->sequence))
      first = &o;
  }
  if (first) context_.failure->raise(mismatch_cause(context_.rank, *first, 0, theirs[first->sequence % kCalls]));
}

}  // namespace ringtape::comm
