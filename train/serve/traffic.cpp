#include "train/serve/traffic.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace ringtape {

void Traffic::add_request(int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++by_status_[status];
  if (newest_.size() < kNewest) newest_.push_back(seconds);
  else newest_[size_t(requests_) % kNewest] = seconds;
  ++requests_, seconds_ += seconds;
}

void Traffic::add_batch(size_t images) {
  const std::lock_guard lock(mutex_);
  ++batches_, images_ += int64_t(images);
}

int64_t Traffic::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

double Traffic::quantile(double q) const {
  std::vector<double> all;
  {
    const std::lock_guard lock(mutex_);
    all = newest_;
  }
  if (all.empty()) return 0;
  const auto at = size_t(std::clamp(std::ceil(q * double(all.size())) - 1, 0.0, double(all.size() - 1)));
  std::ranges::nth_element(all, all.begin() + std::ptrdiff_t(at));
  return all[at];
}

std::string Traffic::text() const {
  constexpr double kQuantiles[] = {0.5, 0.9, 0.99};
  std::string out =
      "# HELP ringtape_request_seconds Time from a whole request to its answer; quantiles of the newest 4096.\n"
      "# TYPE ringtape_request_seconds summary\n";
  for (const double q : kQuantiles) out += concat("ringtape_request_seconds{quantile=\"", q, "\"} ", quantile(q), "\n");
  const std::lock_guard lock(mutex_);
  out += concat("ringtape_request_seconds_sum ", seconds_, "\nringtape_request_seconds_count ", requests_, "\n");
  out += "# HELP ringtape_requests_total Answered requests.\n# TYPE ringtape_requests_total counter\n";
  for (const auto& [status, count] : by_status_)
    out += concat("ringtape_requests_total{code=\"", status, "\"} ", count, "\n");
  out += "# HELP ringtape_batches_total Passes through the network.\n# TYPE ringtape_batches_total counter\n";
  out += concat("ringtape_batches_total ", batches_, "\n");
  out += "# HELP ringtape_images_total Images in them.\n# TYPE ringtape_images_total counter\n";
  return out += concat("ringtape_images_total ", images_, "\n");
}

}  // namespace ringtape
