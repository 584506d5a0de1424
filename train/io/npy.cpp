#include "train/io/npy.h"

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "train/io/file.h"

namespace ringtape {
static const char* description_of(DType dtype) {
  switch (dtype) {
    case DType::b8: return "|b1";
    case DType::u8: return "|u1";
    case DType::i32: return "<i4";
    case DType::i64: return "<i8";
    case DType::f16: return "<f2";
    case DType::f32: return "<f4";
    case DType::f64: return "<f8";
    case DType::bf16: break;
  }
  detail::fail<DTypeError>({"NumPy has no ", dtype, "; cast it to f32"});
}

// The format is github.com/numpy/numpy/blob/main/doc/neps/nep-0001-npy-format.rst. As in numpy.lib.format, the header
// leaves room for the first axis to grow to 21 digits in place, and the data begins at a multiple of 64 bytes, after at
// least one byte of padding.
static std::string header_of(const Tensor& x) {
  constexpr size_t kDigits = 21, kAlign = 64, kBefore = 10;
  std::string shape;
  for (int64_t n : x.shape()) shape += concat(shape.empty() ? "" : ", ", n);
  std::string dict = concat("{'descr': '", description_of(x.dtype()), "', 'fortran_order': False, 'shape': (", shape,
                            x.rank() == 1 ? "," : "", "), }");
  if (x.rank() > 0) dict += std::string(kDigits - std::to_string(x.dim(0)).size(), ' ');
  dict += std::string(kAlign - (kBefore + dict.size() + 1) % kAlign, ' ') + '\n';
  return concat("\x93NUMPY", '\x01', '\0', char(dict.size() & 0xff), char(dict.size() >> 8), dict);
}

void write_npy(const std::string& path, const Tensor& x) {
  const std::string header = header_of(x);
  const NoGrad no_grad;
  const Tensor host = contiguous(x.detach()).copy_to(Device{});
  AtomicFile file(path);
  file.write(header.data(), header.size());
  file.write(View(host).data, size_t(host.size()) * size_of(host.dtype()));
  file.commit();
}

}  // namespace ringtape
