// Values and gradients beside PyTorch's, from files that tests/fixtures/make_*.py wrote.
#include <cmath>
#include <functional>
#include <map>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "tests/support/support.h"
#include "train/io/safetensors.h"
#include "train/optim/adam.h"
#include "train/optim/muon.h"
#include "train/optim/sgd.h"

namespace ringtape {
namespace {

using test::expect_close;
const std::string kFixtures = std::string(RINGTAPE_SOURCE_DIR) + "/tests/fixtures/";

// Two heads, without biases; the rest of t: weights of queries, keys and values, of the output, up, down, norms.
Tensor transformer_block(const Tensors& t) {
  const Tensor &x = t[0], normal = layer_norm(x, t[5], t[6]);
  Tensors heads;
  for (const Tensor& part : chunk(linear(normal, t[1]), 3, -1))
    heads.push_back(transpose(reshape(part, {x.dim(0), x.dim(1), 2, -1}), 1, 2));
  const Tensor attention = scaled_dot_product_attention(heads[0], heads[1], heads[2]);
  const Tensor attended = reshape(transpose(attention, 1, 2), x.shape());
  const Tensor y = x + linear(attended, t[2]);
  return y + linear(gelu(linear(layer_norm(y, t[5], t[6]), t[3])), t[4]);
}

using Call = Tensor (*)(const Tensors&);
const std::map<std::string, Call> kCases = {
#define X(name, ...) {#name, [](const Tensors& t) { return name(t[0]); }},
    RT_UNARY_OPS(X) RT_STEP_OPS(X)
#undef X
#define X(name, ...) {#name, [](const Tensors& t) { return name(t[0], t[1]); }},
        RT_BINARY_OPS(X)
#undef X
            {"transformer_block", transformer_block},
    {"layer_norm", [](const Tensors& t) { return layer_norm(t[0], t[1], t[2]); }},
    {"rms_norm", [](const Tensors& t) { return rms_norm(t[0], t[1]); }},
    {"group_norm", [](const Tensors& t) { return group_norm(t[0], 4, t[1], t[2]); }},
    {"instance_norm", [](const Tensors& t) { return instance_norm(t[0]); }},
    {"mse_loss", [](const Tensors& t) { return mse_loss(t[0], t[1]); }},
    {"l1_loss", [](const Tensors& t) { return l1_loss(t[0], t[1]); }},
    {"smooth_l1_loss", [](const Tensors& t) { return smooth_l1_loss(t[0], t[1], 0.5); }},
    {"huber_loss", [](const Tensors& t) { return huber_loss(t[0], t[1], 0.5, LossReduction::sum); }},
    {"binary_cross_entropy_with_logits", [](const Tensors& t) { return binary_cross_entropy_with_logits(t[0], t[1]); }},
    {"kl_div", [](const Tensors& t) { return kl_div(t[0], t[1], {.reduction = LossReduction::batch_mean}); }},
    {"nll_loss",
     [](const Tensors& t) {
       return nll_loss(t[0], from_host(std::vector<int64_t>{4, 0, 2}, {3}));
     }},
    {"cross_entropy_weighted",
     [](const Tensors& t) {
       const Tensor labels = from_host(std::vector<int64_t>{4, -100, 2}, {3});
       return cross_entropy(t[0], labels, {.label_smoothing = 0.1, .weight = abs(t[1])});
     }},
    {"cross_entropy_soft",
     [](const Tensors& t) { return cross_entropy(t[0], t[1], {.reduction = LossReduction::sum}); }},
    {"argmax", [](const Tensors& t) { return argmax(t[0], 1); }},
    {"argmin", [](const Tensors& t) { return argmin(t[0]); }},
    {"sort", [](const Tensors& t) { return sort(t[0], 0, true).values; }},
    {"argsort", [](const Tensors& t) { return argsort(t[0], 1); }},
    {"topk", [](const Tensors& t) { return topk(t[0], 2, 1).values; }},
    {"cumsum", [](const Tensors& t) { return cumsum(t[0], 1); }},
    {"gather", [](const Tensors& t) { return gather(t[0], 1, t[1]); }},
    {"scatter_add", [](const Tensors& t) { return scatter_add(t[0], 1, t[1], t[2]); }},
    {"embedding", [](const Tensors& t) { return embedding(t[1], t[0]); }},
    {"one_hot", [](const Tensors& t) { return one_hot(t[0], 5); }},
    {"masked_fill", [](const Tensors& t) { return masked_fill(t[0], t[1], 0.5); }},
    {"stack", [](const Tensors& t) { return stack(t, 1); }},
    {"repeat",
     [](const Tensors& t) {
       return repeat(t[0], {2, 1, 3});
     }},
    {"roll", [](const Tensors& t) { return roll(t[0], 2, 1); }},
    {"tril", [](const Tensors& t) { return tril(t[0], -1); }},
    {"triu", [](const Tensors& t) { return triu(t[0], 1); }},
    {"einsum", [](const Tensors& t) { return einsum("bik,bjk->bij", t); }},
    {"leaky_relu", [](const Tensors& t) { return leaky_relu(t[0], 0.2); }},
    {"elu", [](const Tensors& t) { return elu(t[0], 0.7); }},
    {"floor_divide", [](const Tensors& t) { return floor_divide(t[0], t[1]); }},
    {"whole_remainder", [](const Tensors& t) { return t[0] % t[1]; }},
    {"whole_floor_divide", [](const Tensors& t) { return floor_divide(t[0], t[1]); }},
    {"min", [](const Tensors& t) { return min(t[0], {1}); }},
    {"prod", [](const Tensors& t) { return prod(t[0], {1}); }},
    {"std",
     [](const Tensors& t) {
       return standard_deviation(t[0], {1, 2});
     }},
    {"norm", [](const Tensors& t) { return norm(t[0], {1}); }},
    {"norm_3", [](const Tensors& t) { return norm(t[0], {1}, false, 3); }},
    {"less", [](const Tensors& t) { return less(t[0], t[1]); }},
    {"greater_equal", [](const Tensors& t) { return greater_equal(t[0], t[1]); }},
    {"equal", [](const Tensors& t) { return equal(t[0], t[1]); }},
    {"where", [](const Tensors& t) { return where(t[0], t[1], t[2]); }},
    {"clamp", [](const Tensors& t) { return clamp(t[0], -0.5, 0.75); }},
    {"sum",
     [](const Tensors& t) {
       return sum(t[0], {0, 2});
     }},
    {"mean", [](const Tensors& t) { return mean(t[0], {1}, true); }},
    {"max", [](const Tensors& t) { return max(t[0], {1}); }},
    {"var",
     [](const Tensors& t) {
       return var(t[0], {1, 2});
     }},
    {"var_population", [](const Tensors& t) { return var(t[0], {0}, false, 0); }},
    {"logsumexp",
     [](const Tensors& t) {
       return logsumexp(t[0], {0, 1});
     }},
    {"matmul", [](const Tensors& t) { return matmul(t[0], t[1]); }},
    {"matmul_broadcast", [](const Tensors& t) { return matmul(t[0], t[1]); }},
    {"linear", [](const Tensors& t) { return linear(t[0], t[1], t[2]); }},
    {"softmax", [](const Tensors& t) { return softmax(t[0], 1); }},
    {"log_softmax", [](const Tensors& t) { return log_softmax(t[0]); }},
    {"cross_entropy",
     [](const Tensors& t) {
       return cross_entropy(t[0], from_host(std::vector<int64_t>{4, 0, 2}, {3}));
     }},
    {"cross_entropy_smoothed",
     [](const Tensors& t) {
       return cross_entropy(t[0], from_host(std::vector<int64_t>{4, 0, 2}, {3}), 0.1, LossReduction::none);
     }},
    {"l2_normalize", [](const Tensors& t) { return l2_normalize(t[0], 1); }},
    {"index_select",
     [](const Tensors& t) {
       return index_select(t[0], 0, from_host(std::vector<int64_t>{2, 0, 2, 1}, {4}));
     }},
    {"concat", [](const Tensors& t) { return concat(t, 1); }},
    {"permute",
     [](const Tensors& t) {
       return permute(t[0], {2, 0, 1});
     }},
    {"slice", [](const Tensors& t) { return slice(t[0], 1, 1, 4, 2); }},
    {"expand",
     [](const Tensors& t) {
       return expand(t[0], {3, 5});
     }},
    {"reshape",
     [](const Tensors& t) {
       return reshape(transpose(t[0], 0, 1), {8, 3});
     }},
};

TEST(PyTorch, OpsGiveItsValuesAndGradients) {
  const Safetensors file = read_safetensors(kFixtures + "ops.safetensors");
  std::map<std::string, Tensor> all;
  for (const NamedTensor& t : file.tensors) all[t.name] = t.tensor;
  for (const auto& [name, call] : kCases) {
    SCOPED_TRACE(name);
    Tensors x;
    for (int i = 0; all.count(concat(name, "/x", i)); ++i) {
      const Tensor& t = all[concat(name, "/x", i)];
      x.push_back(is_float(t.dtype()) ? leaf(t) : t);
    }
    ASSERT_FALSE(x.empty());
    const Tensor y = call(x);
    expect_close(y, all[name + "/y"], 1e-12, 1e-12, "value");
    if (!all.count(name + "/dy")) continue;
    backward(y, all[name + "/dy"]);
    for (size_t i = 0; i < x.size(); ++i) {
      const bool given = all.count(concat(name, "/dx", i));
      ASSERT_EQ(requires_grad(x[i]) && grad(x[i]).defined(), given) << "gradient " << i;
      if (given) expect_close(grad(x[i]), all[concat(name, "/dx", i)], 1e-11, 1e-12, concat("gradient ", i));
    }
  }
}

const std::map<std::string, int> kWideFrom = {
    {"layer_norm", 1}, {"rms_norm", 1}, {"group_norm", 1}, {"cross_entropy_weighted", 1}};

// Beside the same inputs in f64, whose results are PyTorch's: torch.testing.assert_close's tolerances.
TEST(PyTorch, OpsOfFewerBitsAreWithinItsTolerances) {
  const struct {
    DType dtype;
    double relative;
  } kTolerances[] = {{DType::f32, 1.3e-6}, {DType::bf16, 1.6e-2}, {DType::f16, 1e-3}};
  const Safetensors file = read_safetensors(kFixtures + "ops.safetensors");
  std::map<std::string, Tensor> all;
  for (const NamedTensor& t : file.tensors) all[t.name] = t.tensor;
  for (const auto& [name, call] : kCases)
    for (const auto& [dtype, relative] : kTolerances) {
      if (name == "transformer_block") continue;  // many operations: each may round
      Tensors rounded, exact;
      for (int i = 0; all.count(concat(name, "/x", i)); ++i) {
        const Tensor& t = all[concat(name, "/x", i)];
        const auto wide = kWideFrom.find(name);  // factors that stay f32 beside 16-bit operands
        const bool keeps = wide != kWideFrom.end() && i >= wide->second;
        rounded.push_back(is_float(t.dtype()) ? cast(t, keeps ? DType::f32 : dtype) : t);
        exact.push_back(is_float(t.dtype()) ? cast(rounded.back(), DType::f64) : t);
      }
      expect_close(call(rounded), call(exact), relative, 1e-5, concat(name, ", ", dtype));
    }
}

std::unique_ptr<Optimizer> make(const std::string& name, FlatParameters& p) {
  if (name == "sgd") return std::make_unique<Sgd>(p);
  if (name == "sgd_momentum") return std::make_unique<Sgd>(p, Sgd::Options{.momentum = 0.9, .weight_decay = 5e-4});
  if (name == "sgd_nesterov")
    return std::make_unique<Sgd>(p, Sgd::Options{.momentum = 0.9, .weight_decay = 1e-3, .nesterov = true});
  if (name == "adam") return std::make_unique<Adam>(p, Adam::Options{.weight_decay = 1e-3});
  if (name == "muon") return std::make_unique<Muon>(p, Muon::Options{.weight_decay = 0.1, .rest_lr = 0.1});
  return std::make_unique<Adam>(p, Adam::Options{.weight_decay = 0.1, .decoupled = true});
}
const std::map<std::string, double> kRates = {{"sgd", 0.1},   {"sgd_momentum", 0.05}, {"sgd_nesterov", 0.05},
                                              {"adam", 1e-2}, {"adamw", 1e-2},        {"muon", 0.02}};

// ||a - b|| / ||b||
double distance(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = test::values(a), y = test::values(b);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) difference += (x[i] - y[i]) * (x[i] - y[i]), norm += y[i] * y[i];
  return std::sqrt(difference / norm);
}

void follow(DType dtype, double tolerance) {
  const Safetensors file = read_safetensors(kFixtures + "training.safetensors");
  for (const auto& [name, lr] : kRates) {
    SCOPED_TRACE(name);
    nn::Sequential model;
    model.add<nn::Linear>(20, 16)
        .add<nn::ReLU>()
        .add<nn::Linear>(16, 11)
        .add(std::make_unique<nn::Tanh>())
        .add<nn::Linear>(11, 5);
    for (const nn::Named& p : nn::named_parameters(model)) *p.tensor = leaf(cast(file["initial/" + p.name], dtype));
    FlatParameters flat(model);
    const std::unique_ptr<Optimizer> optimizer = make(name, flat);
    const std::vector<double> losses = test::values(file[name + "/loss"]);
    for (int64_t step = 0; step < 10; ++step) {
      const Tensor x = cast(reshape(slice(file["x"], 0, step, step + 1), {12, 20}), dtype);
      const Tensor y = reshape(slice(file["y"], 0, step, step + 1), {12});
      optimizer->zero_grad();
      const Tensor loss = cross_entropy(model(x), y, 0.1);
      backward(loss);
      EXPECT_NEAR(loss.item(), losses[size_t(step)], tolerance * losses[size_t(step)]) << "step " << step;
      for (const nn::Named& p : nn::named_parameters(model))
        EXPECT_LE(distance(grad(*p.tensor), file[concat(name, "/grad/", step, "/", p.name)]), tolerance)
            << "step " << step << ", " << p.name;
      optimizer->step(lr);
    }
    for (const nn::Named& p : nn::named_parameters(model))
      EXPECT_LE(distance(*p.tensor, file[concat(name, "/final/", p.name)]), tolerance) << p.name;
  }
}

TEST(PyTorch, TenStepsInDoubleAreItsTenSteps) { follow(DType::f64, 1e-11); }
TEST(PyTorch, TenStepsInFloatAreItsTenSteps) { follow(DType::f32, 1e-5); }

// Where PyTorch's step is 0 or NaN.
TEST(Muon, OrthogonalisesMatricesWhoseSquaresAreOutOfRange) {
  manual_seed(5);
  const Tensor x = rand({3, 5}, -1, 1), want = orthogonalized(x);
  for (double scale : {1e-5, 1e18, 1e38})
    test::expect_close(orthogonalized(x * scale), want, 0, 1e-5, concat("times ", scale));
  EXPECT_EQ(test::values(orthogonalized(zeros({3, 5}))), std::vector<double>(15));
}

}  // namespace
}  // namespace ringtape
