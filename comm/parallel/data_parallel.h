#pragma once
#include "core/tensor.h"

// Moves tensors between the devices of one process, with gradients: the parts of a data-parallel step if one process
// has all devices. cpu:0, cpu:1 ... are devices like cuda:0, cuda:1 ..., and a device may be listed twice. A tensor
// that is already on the right device is shared, not copied. Gradients of several devices are added up in the order of
// the devices. Errors: ShapeError, DTypeError, DeviceError, UsageError.
namespace ringtape::comm {

using Devices = std::vector<Device>;

// x (N, ...) in parts along its first axis, one per device, as divided by part_of() (core/part.h); a part may have no
// rows.
Tensors scatter(const Tensor& x, const Devices& devices);
// Concatenates parts (Ni, ...) on one device; a part () counts as a row, so that losses form a vector.
Tensor gather(const Tensors& parts, Device device);

// x on each device; backward adds up their gradients on the device of x.
Tensors broadcast(const Tensor& x, const Devices& devices);
// The sum of tensors of one shape; backward gives the gradient to each.
Tensor reduce_add(const Tensors& xs, Device device);

// The same for many tensors of one device: they are sent in packets of one dtype and at most `bytes` bytes; a larger
// tensor is sent by itself. Tensors of one packet share memory and version. Therefore use separate calls for tensors
// that are changed in place, such as running statistics, and tensors that are saved for backward, such as weights.
// Gradients of broadcast_coalesced are sent back one by one, as they become ready.
inline constexpr int64_t kPacketBytes = int64_t{10} << 20;
// A list for each device.
std::vector<Tensors> broadcast_coalesced(const Tensors& xs, const Devices& devices, int64_t bytes = kPacketBytes);
// Element j of the result is the sum of element j of all lists. Each list is on one device.
Tensors reduce_add_coalesced(const std::vector<Tensors>& lists, Device device, int64_t bytes = kPacketBytes);

}  // namespace ringtape::comm
