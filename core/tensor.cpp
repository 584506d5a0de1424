#include "core/tensor.h"

#include <algorithm>

#include "core/runtime.h"

namespace ringtape {

Tensor::Tensor(const Tensor&) = default;
Tensor::Tensor(Tensor&&) noexcept = default;
Tensor& Tensor::operator=(const Tensor&) = default;
Tensor& Tensor::operator=(Tensor&&) noexcept = default;
Tensor::~Tensor() = default;

Tensor::Tensor(const Shape& shape, DType dtype, Device device) : shape_(shape), dtype_(dtype) {
  int64_t elements = 1;
  for (int64_t d : shape) {
    RT_CHECK_AS(ShapeError, d >= 0, "a tensor of shape ", shape, ": negative size");
    RT_CHECK_AS(ShapeError,
                !__builtin_mul_overflow(elements, std::max<int64_t>(d, 1), &elements) && elements <= INT64_MAX / 8,
                "a tensor of shape ", shape, ": too many elements");
  }
  strides_ = contiguous_strides(shape);
  storage_ = std::make_shared<Storage>(size_t(shape.size()) * size_of(dtype), device);
}

Tensor::Tensor(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype)
    : storage_(std::move(storage)), shape_(shape), strides_(contiguous_strides(shape)), dtype_(dtype) {
  RT_CHECK(size_t(shape.size()) * size_of(dtype) <= storage_->bytes(), shape, " of ", dtype, " in ", storage_->bytes(),
           " bytes");
}

Tensor::operator View() const {
  View v{.data = raw(), .dtype = dtype_, .device = device(), .rank = rank()};
  for (int i = 0; i < v.rank; ++i) {
    v.dims[i] = shape_[i];
    v.strides[i] = strides_[i];
  }
  return v;
}

void* Tensor::raw() const {
  if (!storage_) return nullptr;
  if (storage_->arriving()) {
    int64_t last = 0;
    for (int i = 0; i < rank(); ++i) last += (shape_[i] - 1) * strides_[i];
    if (size() > 0) storage_->await(size_t(offset_), size_t(offset_) + size_t(last + 1) * size_of(dtype_));
    RT_CHECK(size() == 0 || storage_->data(), "a tensor without memory is used");
  }
  return static_cast<char*>(storage_->data()) + offset_;
}

void Tensor::check_host(DType wanted) const {
  RT_CHECK_AS(ShapeError, defined(), "asked for the elements of an undefined tensor");
  RT_CHECK_AS(DTypeError, dtype_ == wanted, "asked for the elements of a ", dtype_, " tensor as ", wanted);
  RT_CHECK_AS(DeviceError, device().type == DeviceType::cpu, "asked for the elements of a tensor on ", device(),
              "; copy it with to(x, cpu) first");
}

double Tensor::item() const {
  RT_CHECK_AS(ShapeError, defined() && size() == 1, "item of a tensor of shape ", shape_, "; it needs one element");
  return dispatch(dtype_, [&]<class T>() {
    T value{};
    runtime(device()).copy(&value, Device{}, raw(), device(), sizeof value);
    return double(compute_t<T>(value));
  });
}

Tensor Tensor::window(const Shape& shape, const Shape& strides, int64_t offset) const {
  Tensor out = detach();
  out.shape_ = shape;
  out.strides_ = strides;
  out.offset_ += offset * int64_t(size_of(dtype_));
  return out;
}

Tensor Tensor::detach() const {
  Tensor out = *this;
  out.node_.reset();
  return out;
}

Tensor Tensor::copy_to(Device device) const {
  RT_CHECK_AS(ShapeError, defined(), "copy_to: an undefined tensor");
  RT_CHECK(contiguous(), "copy_to of strides ", strides_);
  Tensor out(shape_, dtype_, device);
  const Device on_cuda = device.type == DeviceType::cuda ? device : this->device();
  runtime(on_cuda).copy(out.raw(), device, raw(), this->device(), size_t(size()) * size_of(dtype_));
  return out;
}

Tensor zeros(const Shape& shape, DType dtype, Device device) {
  Tensor x(shape, dtype, device);
  runtime(device).zero(View(x).data, x.storage()->bytes(), device.index);
  return x;
}

namespace detail {

Tensor from_host(const void* values, size_t count, DType dtype, const Shape& shape, Device device) {
  RT_CHECK_AS(ShapeError, int64_t(count) == shape.size(), "from_host: ", count, " values for shape ", shape);
  Tensor x(shape, dtype, device);
  runtime(device).copy(View(x).data, device, values, Device{}, count * size_of(dtype));
  return x;
}

}  // namespace detail
}  // namespace ringtape
