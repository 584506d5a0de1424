#pragma once
#include <array>
#include <mutex>

#include "comm/transport.h"

namespace ringtape::comm {

// For a transport whose messages carry no header: the operations that a rank has begun. They are compared with those of
// the others once a rank waits for long. Until then a rank asks the store one question per look(). Only rank 0
// publishes its operations. Thread-safe.
class CallLog {
 public:
  explicit CallLog(const Context& context) : context_(context) {}
  void add(const Operation& operation);  // call when the rank begins it

  // Called from time to time on every rank. `late`: this rank has waited for longer than expected. Raises the group's
  // failure, naming both calls, if this rank and rank 0 have begun different operations with the same sequence number.
  void look(bool late);

 private:
  static constexpr size_t kCalls = 256;  // older calls are forgotten
  static constexpr const char *kLate = "calls/late", *kCallsKey = "calls/of rank 0";
  const Context& context_;
  std::mutex mutex_;
  std::array<Operation, kCalls> calls_{};  // by sequence modulo kCalls
  uint64_t last_ = 0, published_ = 0;      // sequences
  bool announced_ = false;
};

}  // namespace ringtape::comm
