#include "nn/fashion_cnn.h"

namespace ringtape::nn {

// The size of 64 channels after a pool, a convolution without padding and another pool.
static int64_t flat_size(int64_t height, int64_t width) {
  RT_CHECK_AS(UsageError, height >= 8 && width >= 8, "fashion_cnn: images of ", height, "x", width,
              "; it takes 8x8 and larger");
  return 64 * ((height / 2 - 2) / 2) * ((width / 2 - 2) / 2);
}

FashionCnn::FashionCnn(int64_t height, int64_t width, int64_t in, int64_t classes)
    : conv1_(in, 32, 3, {.pad = 1}), bn1_(32), conv2_(32, 64, 3), bn2_(64), fc1_(flat_size(height, width), 600),
      drop_(0.25), fc2_(600, 120), fc3_(120, classes) {}

Tensor FashionCnn::features(const Tensor& x) {
  Tensor y = max_pool2d(bn1_(conv1_(x), Activation::relu), 2, 2, square_window(2));
  y = max_pool2d(bn2_(conv2_(y), Activation::relu), 2, 2, square_window(2));
  y = flatten(permute(y, {0, 3, 1, 2}));  // channels first, as the course's weights expect
  return fc2_(drop_(fc1_(y)));
}

Tensor FashionCnn::forward(const Tensor& x) { return fc3_(features(x)); }

void FashionCnn::visit(Visitor& v) {
  v.child("layer1.0", conv1_);
  v.child("layer1.1", bn1_);
  v.child("layer2.0", conv2_);
  v.child("layer2.1", bn2_);
  v.child("fc1", fc1_);
  v.child("drop", drop_);
  v.child("fc2", fc2_);
  v.child("fc3", fc3_);
}

}  // namespace ringtape::nn
