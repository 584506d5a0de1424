#pragma once
#include <string>
#include <vector>

#include "core/tensor.h"
#include "train/io/json.h"

namespace ringtape {

// How often images of each class are taken for each class: for the class with the largest output, of equal ones the
// first, as top-1 counts.
class Confusion {
 public:
  // `logits` (N, C) of any float type and `labels` i64 (N), each in [0, C), both on cpu:0. `names`: of the classes; of
  // those it lacks, their numbers. Throws ShapeError for other shapes.
  Confusion(const Tensor& logits, const Tensor& labels, std::vector<std::string> names);

  int64_t classes() const { return int64_t(names_.size()); }
  int64_t count(int64_t label, int64_t prediction) const { return counts_[size_t(label * classes() + prediction)]; }

  // A class by itself. Recall: the share of its images that are recognised; precision: the share of what is taken for
  // it that is right; F1: their harmonic mean. NaN where there is nothing to take a share of.
  struct Class {
    int64_t images, taken, right;
    double recall() const, precision() const, f1() const;
  };
  Class of(int64_t label) const;

  // A list with an object for each class (class, images, taken, recall, precision, f1), and the counts, a list for each
  // class of its images' predictions.
  Json per_class_json() const;
  Json json() const;
  // Tables: one line for each class; the counts, or with more than kMaxShown classes the most frequent mistakes.
  std::string per_class_text() const;
  std::string text() const;
  static constexpr int64_t kMaxShown = 20;

 private:
  std::string most_frequent_mistakes() const;

  std::vector<std::string> names_;
  std::vector<int64_t> counts_;  // [label][prediction]
};

}  // namespace ringtape
