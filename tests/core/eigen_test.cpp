// Tensors as matrices of Eigen without a copy, and Eigen as a reference that shares no code with the kernels.
#include "core/eigen.h"

#include <gtest/gtest.h>

#include <Eigen/QR>
#include <Eigen/SVD>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/parallel/reduction/orthonormalize.h"
#include "tests/support/support.h"
#include "train/optim/muon.h"

namespace ringtape {
namespace {

using test::message_of;
using Matrix = Eigen::MatrixXd;

const std::vector<Shape> kShapes = {{3, 5}, {1, 1}, {1, 7}, {7, 1}, {0, 4}, {4, 0}, {64, 33}, {129, 257}};

TEST(Eigen, HasTheElementsOfATensorWithAnyStrides) {
  for (const Shape& shape : kShapes) {
    const Tensor plain = randn(shape, 0, 1, DType::f64), wide = randn({shape[0] + 2, 2 * shape[1] + 1});
    const Tensor some = wide.window(shape, {2 * shape[1] + 1, 2}, 2 * shape[1] + 1);  // every second column
    for (const Tensor& x : {plain, transpose(plain)}) {
      const auto e = as_eigen<double>(x);
      ASSERT_EQ(Shape({e.rows(), e.cols()}), x.shape());
      for (int64_t i = 0; i < x.size(); ++i) {
        const int64_t row = i / x.dim(1), column = i % x.dim(1);
        EXPECT_EQ(&e(row, column), x.data<double>() + row * x.strides()[0] + column * x.strides()[1]);
      }
    }
    EXPECT_EQ(as_eigen<float>(some).cast<double>().sum(), sum(cast(some, DType::f64)).item()) << concat(shape);
  }
  const Tensor x = arange(12);
  as_eigen<int64_t>(transpose(reshape(x, {3, 4})))(3, 1) = -5;
  EXPECT_EQ(as_eigen_vector<int64_t>(x)(7), -5);
  EXPECT_EQ(as_eigen_vector<int64_t>(x.window({4}, {3}, 1))(2), -5);  // strided
}

TEST(Eigen, GivesItsElementsToATensor) {
  for (const Shape& shape : kShapes) {
    Matrix columns = Matrix::Random(shape[0], shape[1]);
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> rows = columns.cast<float>();
    const Tensor c = from_eigen(columns), r = from_eigen(rows);
    EXPECT_EQ(c.shape(), shape);
    EXPECT_EQ(r.shape(), shape);
    EXPECT_EQ(static_cast<const void*>(View(c).data), shape.size() ? columns.data() : View(c).data);
    test::expect_close(cast(contiguous(c), DType::f32), r, 0, 0, "both orders");
    if (shape.size() == 0) continue;
    rows(shape[0] - 1, shape[1] - 1) = 42;
    EXPECT_EQ(r.window({}, {}, r.size() - 1).item(), 42);
    const auto back = as_eigen<double>(c);
    EXPECT_EQ(back, columns);
  }
  Matrix all = Matrix::Random(6, 8);
  auto block = all.block(1, 2, 3, 4);
  EXPECT_EQ(as_eigen<double>(from_eigen(block)), block);
  auto column = all.col(3);
  EXPECT_EQ(from_eigen(column).shape(), Shape({6}));
  auto row = all.row(2);
  EXPECT_EQ(from_eigen(row).strides(), Shape({6}));

  auto owned = std::make_shared<Matrix>(Matrix::Ones(2, 2));
  const std::weak_ptr<Matrix> watch = owned;
  Tensor kept = from_eigen(*owned, owned);
  owned.reset();
  EXPECT_EQ(sum(kept).item(), 4);
  kept = {};
  EXPECT_TRUE(watch.expired());
}

TEST(Eigen, RefusesWhatIsNoMatrix) {
  EXPECT_MENTIONS(message_of<ShapeError>([] {
                    (void)as_eigen<float>(zeros({2, 3, 4}));
                  }),
                  "expected a matrix, got (2, 3, 4)");
  EXPECT_MENTIONS(message_of<ShapeError>([] { (void)as_eigen<float>(zeros({3})); }), "expected a matrix");
  EXPECT_MENTIONS(message_of<ShapeError>([] { (void)as_eigen_vector<float>(zeros({3, 1})); }), "expected a vector");
  EXPECT_MENTIONS(message_of<ShapeError>([] {
                    (void)as_eigen<float>(zeros({1, 3}).window({2, 3}, {0, 1}));
                  }),
                  "repeats elements; call contiguous(x) first");
  EXPECT_MENTIONS(message_of<DTypeError>([] { (void)as_eigen<double>(zeros({2, 3})); }), "f32");
}

void expect_near(const Tensor& x, const Matrix& expected, double tolerance, const char* what) {
  ASSERT_EQ(x.shape(), Shape({expected.rows(), expected.cols()})) << what;
  const double scale = expected.size() ? std::max(1.0, expected.cwiseAbs().maxCoeff()) : 1;
  const Matrix own = as_eigen<double>(contiguous(x));
  EXPECT_LE((own - expected).cwiseAbs().maxCoeff(), tolerance * scale) << what;
}

TEST(EigenAsReference, MatrixProducts) {
  for (const auto& [m, k, n] : {std::tuple{1, 1, 1}, {3, 5, 7}, {64, 64, 64}, {129, 65, 257}, {1, 300, 1}, {9, 1, 4}}) {
    const Tensor a = randn({m, k}, 0, 1, DType::f64), b = randn({k, n}, 0, 1, DType::f64);
    const Matrix ea = as_eigen<double>(a), eb = as_eigen<double>(b);
    expect_near(matmul(a, b), ea * eb, 1e-13, "a b");
    expect_near(matmul(transpose(b), transpose(a)), (ea * eb).transpose(), 1e-13, "b' a'");
    expect_near(matmul(a, transpose(a)), ea * ea.transpose(), 1e-13, "a a'");
  }
}

TEST(EigenAsReference, Variance) {
  for (const Shape& shape : {Shape{2, 3}, Shape{65, 130}, Shape{1000, 2}}) {
    const Tensor x = randn(shape, 100, 0.01, DType::f64);  // a large mean
    const Matrix e = as_eigen<double>(x), centred = e.rowwise() - e.colwise().mean();
    const Matrix expected = centred.colwise().squaredNorm() / double(shape[0]);
    expect_near(reshape(var(x, {0}, false, 0), {1, shape[1]}) * 1e4, expected * 1e4, 1e-9, "var");
  }
}

// Each output is a product with a patch of the image.
TEST(EigenAsReference, ConvolutionByPatches) {
  for (const auto& [side, c, k, kernel, stride, pad] :
       {std::tuple{8, 3, 5, 3, 1, 1}, {9, 16, 4, 3, 2, 1}, {7, 2, 3, 1, 1, 0}, {12, 1, 2, 5, 1, 2}}) {
    const Tensor x = randn({2, side, side, c}, 0, 1, DType::f64), w = randn({k, kernel, kernel, c}, 0, 1, DType::f64);
    const int out = (side + 2 * pad - kernel) / stride + 1;
    Matrix patches = Matrix::Zero(2 * out * out, kernel * kernel * c);
    for (int i = 0; i < 2 * out * out; ++i)
      for (int j = 0; j < kernel * kernel; ++j) {
        const int row = i / out % out * stride + j / kernel - pad, column = i % out * stride + j % kernel - pad;
        if (row < 0 || row >= side || column < 0 || column >= side) continue;
        for (int channel = 0; channel < c; ++channel)
          patches(i, j * c + channel) =
              x.data<double>()[((int64_t(i / (out * out)) * side + row) * side + column) * c + channel];
      }
    const Matrix filters = as_eigen<double>(reshape(w, {k, kernel * kernel * c}));
    const Tensor y = conv2d(x, w, {}, {.stride_h = stride, .stride_w = stride, .pad_h = pad, .pad_w = pad});
    expect_near(reshape(y, {2 * out * out, k}), patches * filters.transpose(), 1e-12, "conv2d");
  }
}

// PowerSGD's: orthonormal rows that span what the rows spanned.
TEST(EigenAsReference, Orthonormalisation) {
  for (const auto& [r, n] : {std::pair{1, 5}, {3, 40}, {4, 4}, {8, 1000}}) {
    const Tensor x = randn({r, n}, 0, 1, DType::f64);
    const Matrix before = as_eigen<double>(x);
    comm::orthonormalize(x);
    const Matrix q = as_eigen<double>(x);
    EXPECT_LE((q * q.transpose() - Matrix::Identity(r, r)).cwiseAbs().maxCoeff(), 1e-14) << r << " " << n;
    const Matrix basis = Eigen::HouseholderQR<Matrix>(before.transpose()).householderQ() * Matrix::Identity(n, r);
    EXPECT_LE((q.transpose() - basis * (basis.transpose() * q.transpose())).cwiseAbs().maxCoeff(), 1e-13);
  }
}

// Muon's: the singular vectors stay, and each singular value goes through the iteration's polynomial.
TEST(EigenAsReference, NewtonSchulzIterations) {
  for (const auto& [m, n] : {std::pair{1, 6}, {5, 5}, {4, 30}, {33, 8}}) {
    const Tensor x = randn({m, n}, 0, 1, DType::f64);
    const Eigen::JacobiSVD<Matrix> svd(as_eigen<double>(x), Eigen::ComputeThinU | Eigen::ComputeThinV);
    Eigen::VectorXd s = svd.singularValues() / svd.singularValues().norm();
    for (int i = 0; i < 5; ++i)
      s = s.unaryExpr([](double v) { return v * (3.4445 + v * v * (-4.775 + v * v * 2.0315)); });
    expect_near(orthogonalized(x), svd.matrixU() * s.asDiagonal() * svd.matrixV().transpose(), 1e-11, "orthogonalized");
  }
}

}  // namespace
}  // namespace ringtape
