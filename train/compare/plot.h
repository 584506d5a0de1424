#pragma once
#include <string>
#include <vector>

#include "train/compare/table.h"

namespace ringtape {

// Accuracy and loss by epoch, a curve a strategy: the mean over seeds, and around it one standard deviation to either side. Of the
// validation, or of the training where there was none; dots are the test. SVG.
std::string comparison_plot(const std::vector<ComparedStrategy>& strategies, const std::string& title);

}  // namespace ringtape
