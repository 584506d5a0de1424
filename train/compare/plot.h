#pragma once
#include "train/compare/method_table.h"

namespace ringtape {

// Accuracy and loss by epoch, one curve per strategy: the mean over seeds, with a band of one standard deviation to
// either side. From the validation, or from training if there was none; dots are the test. If settings vary, those with
// the highest accuracy. SVG.
std::string comparison_plot(const std::vector<ComparedStrategy>& strategies, const std::string& title);

// For each method a panel of kNN accuracy, with the same scale for all, and a panel of its loss, with its own scale;
// one curve per setting. SVG.
std::string methods_plot(const std::vector<ComparedMethod>& methods, const std::string& title);

}  // namespace ringtape
