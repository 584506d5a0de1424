#pragma once
#include "core/tensor.h"

// Moving tensors among the devices of one process, with gradients: what a data-parallel step is made of where one
// process has all devices. cpu:0, cpu:1 ... are devices as cuda:0, cuda:1 ... are, and one may come twice. What is
// already where it shall be is not copied but shared. Gradients of several devices are added up in their order. Errors:
// ShapeError, DTypeError, DeviceError, UsageError.
namespace ringtape::comm {

using Devices = std::vector<Device>;

// x (N, ...) in parts along its first axis, a device each, as part_of() has it (core/part.h); one may have no rows.
Tensors scatter(const Tensor& x, const Devices& devices);
// Parts (Ni, ...) one after the other on one device; a part () counts as a row, so that losses make a vector.
Tensor gather(const Tensors& parts, Device device);

// x on each device; backward adds up their gradients where x is.
Tensors broadcast(const Tensor& x, const Devices& devices);
// The sum of tensors of one shape; backward hands its gradient to each.
Tensor reduce_add(const Tensors& xs, Device device);

// The same for many tensors, which lie on one device: they travel in packets of one dtype, of at most so many bytes; a
// larger tensor goes alone. What comes out of a packet shares its memory, and with it the version: what is to be
// written to in place, such as running statistics, wants a call apart from what is saved for backward, such as weights.
// Gradients of broadcast_coalesced go back one by one, as they come.
inline constexpr int64_t kPacketBytes = int64_t{10} << 20;
// A list for each device.
std::vector<Tensors> broadcast_coalesced(const Tensors& xs, const Devices& devices, int64_t bytes = kPacketBytes);
// Element j of the result is the sum of element j of all lists, of which each lies on one device.
Tensors reduce_add_coalesced(const std::vector<Tensors>& lists, Device device, int64_t bytes = kPacketBytes);

}  // namespace ringtape::comm
