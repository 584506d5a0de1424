#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace ringtape {

// Changed copies of a test image, over which the outputs of a network are averaged:
//   none   the image alone
//   flip   also its mirror image, left to right
//   shift  these two, with half of the weight; and both of them shifted by a pixel to the upper left and to the lower
//          right, with the mirror image of the rest where nothing comes in (Jordan, "94% on CIFAR-10 in 3.29 seconds on
//          a single GPU", 2024)
std::vector<std::string> names_of_test_copies();

// The mean of the outputs (B, C) of f for the copies of images (B, H, W, C); of H, W > 1 for `shift`.
Tensor mean_over_copies(const std::string& copies, const Tensor& images, const std::function<Tensor(const Tensor&)>& f);

}  // namespace ringtape
