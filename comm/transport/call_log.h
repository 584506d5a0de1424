#pragma once
#include <array>
#include <mutex>

#include "comm/transport.h"

namespace ringtape::comm {

// For a transport whose messages carry no header: what a rank has begun, to be compared with what
// the others have once somebody waits for long. Until then a rank asks the store one question a
// look, and rank 0 alone ever writes down what it did. Thread-safe.
class CallLog {
 public:
  explicit CallLog(const Context& context) : context_(context) {}
  void add(const Operation& operation);  // where the rank begins it

  // Called now and then on every rank, wherever it is; `late`: it has waited for longer than it should. Raises the
  // group's failure, naming both calls, if this rank and rank 0 have begun different operations under the same number.
  void look(bool late);

 private:
  static constexpr size_t kCalls = 256;  // what is older is forgotten
  static constexpr const char *kLate = "calls/late", *kCallsKey = "calls/of rank 0";
  const Context& context_;
  std::mutex mutex_;
  std::array<Operation, kCalls> calls_{};  // by sequence modulo their number
  uint64_t last_ = 0, published_ = 0;      // sequences
  bool announced_ = false;
};

}  // namespace ringtape::comm
