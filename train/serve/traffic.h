#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ringtape {

// Counts the requests of a server, and the seconds that the newest of them took. All functions may be called by
// several threads.
class Traffic {
 public:
  static constexpr size_t kNewest = 4096;

  void add_request(int status, double seconds);
  void add_batch(size_t images);

  // The shortest time within which a share `q` of the newest requests were answered; 0 before the first one.
  double quantile(double q) const;
  int64_t requests() const;
  // In the text format of Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::map<int, int64_t> by_status_;
  std::vector<double> newest_;  // a ring, once it has kNewest
  int64_t requests_ = 0, batches_ = 0, images_ = 0;
  double seconds_ = 0;
};

}  // namespace ringtape
