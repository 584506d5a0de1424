#pragma once
#include <cmath>
#include <memory>
#include <set>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/module.h"
#include "tests/support/support.h"
#include "train/io/safetensors.h"

// Networks beside PyTorch's, from the same weights and images: tests/fixtures/make_resnet.py.
namespace ringtape::test {

// Uniform in [-1, 1): splitmix64 of seed * 2^32 + i, as the script has it.
inline Tensor fixture_noise(const Shape& shape, uint64_t seed) {
  Tensor x(shape, DType::f64);
  for (int64_t i = 0; i < x.size(); ++i) {
    uint64_t z = ((seed << 32) + uint64_t(i) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    x.data<double>()[i] = double((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
  }
  return x;
}

inline bool of_batch_norm(const std::string& name) {
  return name.find("bn") != std::string::npos || name.find("norm") != std::string::npos ||
         name.find("downsample.1") != std::string::npos;
}

// `features`: the inputs of the last layer.
template <class Network>
std::unique_ptr<Network> network(const typename Network::Options& options, int64_t features, DType dtype) {
  auto model = std::make_unique<Network>(options);
  uint64_t number = 0;
  for (const nn::Named& p : nn::named_parameters(*model)) {
    const Shape shape = p.tensor->shape();
    const Tensor u = fixture_noise(shape, number++);
    const double fan_in = shape.rank() == 4 ? double(shape.size() / shape[0]) : double(features),
                 first = p.name.ends_with("weight") ? 1 : 0;
    *p.tensor = leaf(cast(of_batch_norm(p.name) ? first + 0.2 * u : u * (1 / std::sqrt(fan_in)), dtype));
  }
  for (const nn::Named& b : nn::named_buffers(*model))
    if (is_float(b.tensor->dtype())) *b.tensor = cast(*b.tensor, dtype);
  return model;
}

inline Tensor fixture_labels(int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(i * 7 % 10);
  return from_host(out, {count});
}

inline double norm_of(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}

// Of each gradient the fixture has a few elements, the norm and a projection.
inline void expect_gradient(const Tensor& g, const std::vector<double>& want, uint64_t number, double tolerance,
                            const std::string& name) {
  const std::vector<double> all = values(g), direction = values(fixture_noise({g.size()}, 2000 + number));
  const size_t elements = want.size() - 2;
  const double scale = want[elements], typical = scale / std::sqrt(double(all.size()));
  double projection = 0;
  for (size_t i = 0; i < all.size(); ++i) projection += all[i] * direction[i];
  EXPECT_NEAR(norm_of(all), scale, tolerance * scale) << name;
  EXPECT_NEAR(projection, want[elements + 1], tolerance * scale) << name;
  for (size_t i = 0; i < elements; ++i)
    EXPECT_NEAR(all[i * all.size() / elements], want[i], tolerance * 10 * typical) << name << ", element " << i;
}

inline Safetensors fixture(const std::string& name) {
  return read_safetensors(concat(RINGTAPE_SOURCE_DIR "/tests/fixtures/", name, ".safetensors"));
}

inline void expect_one_step(nn::Module* model, const std::string& name, const Tensor& images, double tolerance) {
  const Safetensors file = fixture(name);
  const Tensor logits = (*model)(images), loss = cross_entropy(logits, fixture_labels(images.dim(0)));
  expect_close(logits, file["logits"], tolerance, tolerance, "logits");
  EXPECT_NEAR(loss.item(), values(file["loss"])[0], tolerance);
  backward(loss);
  uint64_t number = 0;
  for (const nn::Named& p : nn::named_parameters(*model)) {
    expect_gradient(grad(*p.tensor), values(file["grad/" + p.name]), number, tolerance, p.name);
    ++number;
  }
  for (const nn::Named& b : nn::named_buffers(*model))
    if (b.name.find("running") != std::string::npos)
      expect_close(*b.tensor, file["running/" + b.name], tolerance, tolerance, b.name);
}

// Everything that the fixture names, and nothing else.
inline void expect_names(nn::Module& model, const std::string& name) {
  std::set<std::string> ours, theirs;
  for (const nn::Named& p : nn::named_parameters(model)) ours.insert("grad/" + p.name);
  for (const nn::Named& b : nn::named_buffers(model))
    if (b.name.find("running") != std::string::npos) ours.insert("running/" + b.name);
  for (const NamedTensor& t : fixture(name).tensors)
    if (t.name.find('/') != std::string::npos) theirs.insert(t.name);
  EXPECT_EQ(ours, theirs) << name;
}

}  // namespace ringtape::test
