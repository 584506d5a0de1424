#include "comm/process_group.h"

// The group of a process without others.
namespace ringtape::comm {
namespace {

class Alone : public Transport {
 public:
  explicit Alone(Context context) : Transport(std::move(context)) {}
  std::string_view name() const override { return "alone"; }
  std::unique_ptr<Transport> open(Context context) const override {
    return std::make_unique<Alone>(std::move(context));
  }
  Ticket start(std::span<const Transfer> transfers) override {
    RT_CHECK(transfers.empty(), "a message in a group of one");
    return 0;
  }
  void finish(Ticket) override {}
};

}  // namespace

ProcessGroup& alone() {
  thread_local ProcessGroup group(std::make_unique<Alone>(
      Context{.store = memory_store(), .failure = std::make_shared<Failure>(), .timeout = Seconds(600)}));
  return group;
}

}  // namespace ringtape::comm
