#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "comm/health/failure.h"
#include "comm/store/store.h"

namespace ringtape::comm {

// Connects one process of a job with the others through the store: all end with the same cause, learn when one dies,
// and answer what they are doing. A separate thread watches the store; it costs nothing while nothing happens.
class Hub : public Failure::Peers {
 public:
  // `failure` is raised when the failure of any process is raised, when a process dies, or when the store is lost; it
  // asks the hub from now on. If the process ends without destroying the hub's store, the others learn "`self` died".
  // If an exception destroys the hub, they learn that an exception ended `self`. `changed`: called once on the hub's
  // thread when somebody sets kChangeKey.
  static std::shared_ptr<Hub> open(std::shared_ptr<Store> store, std::shared_ptr<Failure> failure, int rank, int size,
                                   const std::string& self, std::function<void()> changed = {});
  ~Hub() override;

  std::string agree(const std::string& cause) override;
  std::optional<std::string> activities() override;

 private:
  Hub(std::shared_ptr<Store> store, std::shared_ptr<Failure> failure, int rank, int size, std::string self,
      std::function<void()> changed);
  void watch();
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<Failure> failure_;
  const int rank_, size_;
  const std::string self_, left_;  // left_: the key that is set when this process leaves
  const std::function<void()> changed_;
  const int exceptions_ = std::uncaught_exceptions();
  std::thread watcher_;
};

inline constexpr const char* kFailureKey = "hub/failure";  // the cause, once the job has failed
inline constexpr const char* kChangeKey = "hub/change";    // who asks for another generation (comm/job/membership.h)

}  // namespace ringtape::comm
