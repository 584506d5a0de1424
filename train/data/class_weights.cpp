#include "train/data/class_weights.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/parse.h"

namespace ringtape {

std::vector<double> listed_class_weights(const std::string& text) {
  if (text == "none" || text == "balanced") return {};
  std::vector<double> out;
  for (const std::string& word : split_text(text)) {
    const auto weight = parse_number(word, 0.0, std::numeric_limits<double>::max());
    RT_CHECK_AS(UsageError, weight,
                "--class-weights: expected none, balanced or a number from 0 up for each class, such as 1,2.5,1, got '",
                text, "'");
    out.push_back(*weight);
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
