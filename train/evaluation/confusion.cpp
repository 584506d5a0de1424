#include "train/evaluation/confusion.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/check.h"
#include "core/printable.h"
#include "train/io/json.h"

namespace ringtape {
static double share(int64_t part, int64_t whole) {
  return whole > 0 ? double(part) / double(whole) : std::numeric_limits<double>::quiet_NaN();
}
static std::string share_text(double share) { return std::isnan(share) ? "-" : fmt::format("{:.2f} %", 100 * share); }

// Columns as wide as their longest cell; the first is to the left, the others to the right.
static std::string table(const std::vector<std::vector<std::string>>& rows) {
  const auto width = [](const std::string& cell) {  // characters of UTF-8
    return size_t(std::count_if(cell.begin(), cell.end(), [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
  };
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string out;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width(row[i]), ' ');
      line += i == 0 ? row[i] + space : "  " + space + row[i];
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

Confusion::Confusion(const Tensor& logits, const Tensor& labels, std::vector<std::string> names)
    : names_(std::move(names)) {
  RT_CHECK_AS(ShapeError, logits.rank() == 2 && labels.shape() == Shape{logits.dim(0)}, "confusion: logits ",
              logits.shape(), " and labels ", labels.shape(), ": expected (N, C) and (N)");
  const NoGrad no_grad;
  const Tensor scores = contiguous(cast(logits.detach(), DType::f64));
  const int64_t n = scores.dim(0), c = scores.dim(1);
  for (auto i = int64_t(names_.size()); i < c; ++i) names_.push_back(std::to_string(i));
  counts_.resize(size_t(c * c));
  const Tensor classes = contiguous(labels);
  for (int64_t i = 0; i < n; ++i) {
    const double* const row = scores.data<double>() + i * c;
    int64_t best = 0;
    for (int64_t j = 1; j < c; ++j)
      if (row[j] > row[best] || std::isnan(row[best])) best = j;
    ++counts_[size_t(classes.data<int64_t>()[i] * c + best)];
  }
}

double Confusion::Class::recall() const { return share(right, images); }
double Confusion::Class::precision() const { return share(right, taken); }
double Confusion::Class::f1() const { return share(2 * right, images + taken); }

Confusion::Class Confusion::of(int64_t label) const {
  Class out{0, 0, count(label, label)};
  for (int64_t other = 0; other < classes(); ++other)
    out.images += count(label, other), out.taken += count(other, label);
  return out;
}

Json Confusion::per_class_json() const {
  Json out = Json::list();
  for (int64_t i = 0; i < classes(); ++i) {
    const Class each = of(i);
    out.push_back({{"class", names_[size_t(i)]},
                   {"images", each.images},
                   {"taken", each.taken},
                   {"recall", each.recall()},
                   {"precision", each.precision()},
                   {"f1", each.f1()}});
  }
  return out;
}

Json Confusion::json() const {
  Json out = Json::list();
  for (int64_t i = 0; i < classes(); ++i) {
    const auto begin = counts_.begin() + i * classes();
    out.push_back(std::vector<int64_t>(begin, begin + classes()));
  }
  return out;
}

std::string Confusion::per_class_text() const {
  std::vector<std::vector<std::string>> rows{{"class", "images", "recall", "precision", "F1"}};
  for (int64_t i = 0; i < classes(); ++i) {
    const Class each = of(i);
    rows.push_back({printable(names_[size_t(i)]), with_commas(each.images), share_text(each.recall()),
                    share_text(each.precision()), share_text(each.f1())});
  }
  return table(rows);
}

std::string Confusion::text() const {
  if (classes() > kMaxShown) return most_frequent_mistakes();
  std::vector<std::vector<std::string>> rows{{"class \\ taken for"}};
  for (const std::string& name : names_) rows[0].push_back(printable(name));
  for (int64_t i = 0; i < classes(); ++i) {
    rows.push_back({printable(names_[size_t(i)])});
    for (int64_t j = 0; j < classes(); ++j) rows.back().push_back(with_commas(count(i, j)));
  }
  return table(rows);
}

std::string Confusion::most_frequent_mistakes() const {
  struct Mistake {
    int64_t label, prediction, count;
  };
  std::vector<Mistake> all;
  for (int64_t i = 0; i < classes(); ++i)
    for (int64_t j = 0; j < classes(); ++j)
      if (i != j && count(i, j) > 0) all.push_back({i, j, count(i, j)});
  std::stable_sort(all.begin(), all.end(), [](const Mistake& a, const Mistake& b) { return a.count > b.count; });
  std::vector<std::vector<std::string>> rows{{"most frequent mistakes", "taken for", "images", "of the class"}};
  for (size_t i = 0; i < std::min(all.size(), size_t(kMaxShown)); ++i)
    rows.push_back({printable(names_[size_t(all[i].label)]), printable(names_[size_t(all[i].prediction)]),
                    with_commas(all[i].count), share_text(share(all[i].count, of(all[i].label).images))});
  return table(rows);
}

}  // namespace ringtape
