#pragma once
#include <exception>
#include <memory>
#include <string>
#include <thread>

#include "comm/health/failure.h"
#include "comm/store/store.h"

namespace ringtape::comm {

// One process of a job among the others, through the store: they end with the same cause, know when one dies, and
// answer what they are at. A thread of its own watches the store; it costs nothing while nothing happens.
class Hub : public Failure::Peers {
 public:
  // `failure` is raised when any process's is, one dies, or the store is lost; it asks the hub from then on. If the
  // process goes without destroying the hub's store, the others learn "`self` died"; if an exception destroys the hub,
  // that `self` has ended by one.
  static std::shared_ptr<Hub> open(std::shared_ptr<Store> store, std::shared_ptr<Failure> failure, int rank, int size,
                                   const std::string& self);
  ~Hub() override;

  std::string agree(const std::string& cause) override;
  std::optional<std::string> activities() override;

 private:
  Hub(std::shared_ptr<Store> store, std::shared_ptr<Failure> failure, int rank, int size, std::string self);
  void watch();
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<Failure> failure_;
  const int rank_, size_;
  const std::string self_, left_;  // left_: the key that says so
  const int exceptions_ = std::uncaught_exceptions();
  std::thread watcher_;
};

inline constexpr const char* kFailureKey = "hub/failure";  // the cause, once there is one

}  // namespace ringtape::comm
