#pragma once
#include "train/compare/method_table.h"

namespace ringtape {

// Accuracy and loss by epoch, a curve a strategy: the mean over seeds, and around it one standard deviation to either
// side. Of the validation, or of the training where there was none; dots are the test. SVG.
std::string comparison_plot(const std::vector<ComparedStrategy>& strategies, const std::string& title);

// Of each method a panel of its kNN accuracy, which all have on one scale, and one of its loss, which is of its own
// kind; a curve a setting. SVG.
std::string methods_plot(const std::vector<ComparedMethod>& methods, const std::string& title);

}  // namespace ringtape
