#include "train/evaluation/test_copies.h"

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/augment.h"

namespace ringtape {

std::vector<std::string> names_of_test_copies() { return {"none", "flip", "shift"}; }

// Row and column i of the result are i + by, or where that is mirrored.
static Tensor shifted_images(const Tensor& x, int64_t by) {
  Tensor y = x;
  for (const int axis : {1, 2}) {
    std::vector<int64_t> from;
    for (int64_t i = 0; i < x.dim(axis); ++i) from.push_back(reflected(i + by, x.dim(axis)));
    y = index_select(y, axis, to(from_host(from, {x.dim(axis)}), x.device()));
  }
  return y;
}

Tensor mean_over_copies(const std::string& copies, const Tensor& images,
                        const std::function<Tensor(const Tensor&)>& f) {
  if (copies == "none") return f(images);
  const auto wide = [&f](const Tensor& x) {
    const Tensor y = f(x);
    return y.dtype() == DType::f64 ? y : cast(y, DType::f32);
  };
  const auto both = [&wide](const Tensor& x) { return (wide(x) + wide(flip(x, 2))) * 0.5; };
  const Tensor y = both(images);
  if (copies == "flip") return y;
  RT_CHECK_AS(UsageError, images.dim(1) > 1 && images.dim(2) > 1, "--test-copies shift: images of ", images.dim(1), "x",
              images.dim(2), " cannot be shifted");
  return y * 0.5 + (both(shifted_images(images, -1)) + both(shifted_images(images, 1))) * 0.25;
}

}  // namespace ringtape
