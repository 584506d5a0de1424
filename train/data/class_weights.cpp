#include "train/data/class_weights.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/check.h"

namespace ringtape {

std::vector<double> listed_class_weights(const std::string& text) {
  if (text == "none" || text == "balanced") return {};
  std::vector<double> out;
  const char *at = text.data(), *const end = at + text.size();
  for (bool more = true; more;) {
    double& weight = out.emplace_back(-1);
    const auto [rest, error] = std::from_chars(at, end, weight);
    const bool good = error == std::errc{} && weight >= 0 && std::isfinite(weight) && (rest == end || *rest == ',');
    RT_CHECK_AS(UsageError, good,
                "--class-weights: expected none, balanced or a number from 0 up for each class, such "
                "as 1,2.5,1, got '",
                text, "'");
    more = rest != end;
    at = rest + more;
  }
  RT_CHECK_AS(UsageError, std::ranges::any_of(out, [](double w) { return w > 0; }), "--class-weights ", text,
              ": all are 0, so that nothing would be learned; set one above 0");
  return out;
}

std::vector<double> class_weights(const std::string& text, const Dataset& data, const std::vector<int64_t>& samples) {
  std::vector<double> out = listed_class_weights(text);
  if (out.empty() && text != "balanced") return out;
  RT_CHECK_AS(UsageError, out.empty() || int64_t(out.size()) == data.classes, "--class-weights ", text, ": expected ",
              data.classes, " numbers, one for each class of ", data.name, ", got ", out.size(),
              "; give all of them in the classes' order, or use balanced");
  std::vector<int64_t> counts(size_t(data.classes));
  const Tensor labels = data.labels.copy_to(Device{});
  for (const int64_t i : samples) ++counts[size_t(labels.data<int64_t>()[i])];
  const auto present = double(std::ranges::count_if(counts, [](int64_t n) { return n > 0; }));
  double sum = 0;
  if (text == "balanced")
    for (const int64_t n : counts) out.push_back(n > 0 ? double(samples.size()) / (present * double(n)) : 0);
  for (size_t c = 0; c < out.size(); ++c) sum += out[c] * double(counts[c]);
  RT_CHECK_AS(UsageError, sum > 0 && std::isfinite(sum), "--class-weights ", text, ": the ", samples.size(),
              " training images together have the weight ", sum, "; set one above 0 of a class that has images");
  return out;
}

}  // namespace ringtape
