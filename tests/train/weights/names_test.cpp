// Names of weights in files of other programs.
#include "train/weights/names.h"

#include <functional>

#include "core/text.h"
#include "nn/vit.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"
#include "train/io/safetensors.h"
#include "train/model/models.h"
#include "train/weights/trained_on.h"
#include "train/weights/weights.h"

namespace ringtape {
namespace {

std::vector<std::string> resnet_names() {
  const ModelEntry& entry = find_model("resnet18");
  Settings settings = entry.settings;
  const auto model = entry.make({.image = {8, 8, 3}, .classes = 2, .settings = settings});
  std::vector<std::string> out;
  for (const NamedTensor& t : weights_of(*model)) out.push_back(t.name);
  return out;
}

using Rename = std::function<std::string(const std::string&)>;  // "": the file does not have it
std::vector<std::string> renamed(const std::vector<std::string>& names, const Rename& rename) {
  std::vector<std::string> out;
  for (const std::string& name : names)
    if (std::string other = rename(name); !other.empty()) out.push_back(std::move(other));
  return out;
}
bool is_last(const std::string& name) { return name.starts_with("fc."); }

// The file has everything: each name leads to that which was made of it.
void expect_found(const std::vector<std::string>& network, const Rename& rename, const std::string& prefix,
                  std::vector<std::string> more = {}) {
  std::vector<std::string> file = renamed(network, rename);
  file.insert(file.end(), more.begin(), more.end());
  const NamesInFile found = find_names(file, network, "fc");
  EXPECT_EQ(found.prefix, prefix);
  for (const std::string& name : network) {
    const std::string other = rename(name);
    const auto at = found.of.find(name);
    EXPECT_EQ(at == found.of.end() ? "" : at->second, other) << name;
  }
  EXPECT_TRUE(found.unknown.empty()) << found.unknown.front();
  std::sort(more.begin(), more.end());
  std::vector<std::string> rest = found.rest;
  std::sort(rest.begin(), rest.end());
  EXPECT_EQ(rest, more);
}

TEST(NamesInFile, PrefixesOfOtherPrograms) {
  const std::vector<std::string> network = resnet_names();
  for (const char* const prefix : {"", "module.", "backbone.", "model.backbone.", "_orig_mod.", "module._orig_mod.",
                                   "encoder.", "module.base_encoder.", "net.0."}) {
    std::string canonical = prefix;
    if (const size_t at = canonical.find("_orig_mod."); at != std::string::npos) canonical.erase(at, 10);
    expect_found(
        network, [&](const std::string& name) { return prefix + name; }, canonical);
  }
  // Compiled inside of a module; without the counters of batches, as before PyTorch 0.4.1; without the last layer.
  expect_found(
      network, [](const std::string& name) { return "backbone._orig_mod." + name; }, "backbone.");
  expect_found(
      network, [](const std::string& name) { return name.ends_with("num_batches_tracked") ? "" : name; }, "");
  expect_found(
      network, [](const std::string& name) { return is_last(name) ? "" : name; }, "");
}

TEST(NamesInFile, AFileWithANetworkAndItsAverage) {
  const std::vector<std::string> network = resnet_names();
  for (const auto& pair :
       std::vector<std::pair<std::string, std::string>>{{"module.encoder_q.", "module.encoder_k."},
                                                        {"backbone.", "backbone_momentum."},
                                                        {"backbone.", "momentum_backbone."},
                                                        {"student.backbone.", "teacher.backbone."},
                                                        {"online_model.", "ema_model."},
                                                        {"online_encoder.net.", "target_encoder.net."}}) {
    const Rename other = [&](const std::string& name) { return pair.second + name; };
    expect_found(
        network, [&](const std::string& name) { return pair.first + name; }, pair.first, renamed(network, other));
  }
}

// nn.Sequential(*list(resnet.children())[:-1]) of torchvision, with a ReLU and a pool between, and of lightly.
TEST(NamesInFile, ASequentialOfTheChildren) {
  const std::vector<std::string> network = resnet_names();
  const std::map<std::string, int> torchvision = {{"conv1", 0},  {"bn1", 1},    {"layer1", 4},
                                                  {"layer2", 5}, {"layer3", 6}, {"layer4", 7}},
                                   lightly = {{"conv1", 0},  {"bn1", 1},    {"layer1", 2},
                                              {"layer2", 3}, {"layer3", 4}, {"layer4", 5}};
  for (const auto& children : {torchvision, lightly})
    for (const std::string prefix : {"", "backbone.", "model.backbone."})
      expect_found(
          network,
          [&](const std::string& name) {
            const size_t dot = name.find('.');
            const auto child = children.find(name.substr(0, dot));
            return child == children.end() ? "" : concat(prefix, child->second, name.substr(dot));
          },
          prefix, prefix.empty() ? std::vector<std::string>() : std::vector<std::string>{"projection_head.0.weight"});
}

TEST(NamesInFile, OtherNamesOfLayers) {
  const std::vector<std::string> network = resnet_names();
  const auto with_last = [](const std::string& before, const std::string& last) -> Rename {
    return [=](const std::string& name) { return is_last(name) ? last + name.substr(2) : before + name; };
  };
  expect_found(network, with_last("", "linear"), "");
  expect_found(network, with_last("backbone.", "classifier"), "backbone.");
  expect_found(network, with_last("module.backbone.", "module.head"), "module.backbone.");
  expect_found(
      network,
      [](const std::string& name) {
        const size_t at = name.find(".downsample.");
        return at == std::string::npos ? name : name.substr(0, at) + ".shortcut." + name.substr(at + 12);
      },
      "");
}

TEST(NamesInFile, ALastLayerIsTakenWhole) {
  const std::vector<std::string> network = {"conv1.weight", "fc.weight", "fc.bias"};
  const NamesInFile found = find_names({"conv1.weight", "fc.weight", "head.bias"}, network, "fc");
  EXPECT_EQ(found.of.at("fc.weight"), "fc.weight");
  EXPECT_FALSE(found.of.contains("fc.bias"));
  EXPECT_FALSE(find_names({"conv1.weight", "head.bias"}, network, "fc").of.contains("fc.bias"));
}

TEST(NamesInFile, WrappedModulesAndTheirDoubles) {
  const std::vector<std::string> network = {"conv1.weight", "bn1.weight"};
  for (const char* const wrapper : {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."})
    EXPECT_EQ(find_names({concat("a.", wrapper, "conv1.weight"), "a.bn1.weight"}, network, "").of.size(), 2u)
        << wrapper;
  const NamesInFile found = find_names({"_orig_mod.conv1.weight", "conv1.weight", "bn1.weight"}, network, "");
  EXPECT_EQ(found.of.at("conv1.weight"), "conv1.weight");
  EXPECT_EQ(found.rest, std::vector<std::string>{"_orig_mod.conv1.weight"});
  std::string dots = "x";
  for (int i = 0; i < 50'000; ++i) dots += ".1";
  EXPECT_TRUE(find_names({dots}, network, "").of.empty());
}

TEST(NamesInFile, AnotherNetworkIsNotTakenForThisOne) {
  const std::vector<std::string> network = resnet_names();
  std::vector<std::string> deeper = network;
  deeper.push_back("layer1.2.conv1.weight");
  EXPECT_EQ(find_names(deeper, network, "fc").unknown, std::vector<std::string>{"layer1.2.conv1.weight"});
  const NamesInFile other = find_names({"blocks.0.norm1.weight", "head.weight"}, network, "fc");
  EXPECT_FALSE(other.of.contains("conv1.weight"));
  const std::vector<std::string> mlp = {"1.weight", "1.bias", "3.weight", "3.bias"};
  EXPECT_EQ(find_names(mlp, mlp, "3").of.size(), 4u);
  EXPECT_EQ(find_names({"net.1.weight", "net.1.bias", "net.3.weight", "net.3.bias"}, mlp, "3").of.at("3.bias"),
            "net.3.bias");
  EXPECT_TRUE(find_names({}, network, "fc").of.empty());
  EXPECT_TRUE(find_names(network, {}, "").of.empty());
}

TEST(NamesInFile, AreCountedInMessages) {
  EXPECT_EQ(
      summary_of({"module.encoder_k.conv1.weight", "module.encoder_k.fc.bias", "module.queue"}, "module.encoder_q."),
      "module.encoder_k.* (2), module.queue");
  EXPECT_EQ(summary_of({"a.b.c", "d"}, ""), "a.*, d");
  EXPECT_EQ(summary_of({}, "x."), "");
  EXPECT_EQ(summary_of({"a", "b", "c", "d", "e", "f", "g", "h", "i", "j.k", "j.l"}, ""),
            "a, b, c, d, e, f, g, h and 2 more");
}

// A vision transformer's file, below a prefix and in 16 bits, for images of another size.
TEST(NamesInFile, PositionsAreResampled) {
  const auto vit = [](int64_t height, int64_t width) {
    return nn::VisionTransformer(
        {.image = {height, width}, .patch = 4, .classes = 2, .width = 16, .depth = 1, .heads = 2});
  };
  const auto positions = [](nn::Module& m) { return nn::named_parameters(m)[1].tensor->detach(); };
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/positions.safetensors";
  const auto write = [&](nn::Module& m, std::map<std::string, std::string> metadata = {}) {
    std::vector<NamedTensor> all = weights_of(m);
    for (NamedTensor& t : all) t.name = "backbone." + t.name, t.tensor = cast(t.tensor, DType::f16);
    write_safetensors(path, all, std::move(metadata));
  };
  const auto expect_resampled = [&](nn::Module& from, nn::Module& to, const nn::Grid& before, const nn::Grid& after) {
    const NoGrad no_grad;
    const LoadedWeights loaded = load_backbone(path, to, "head");
    EXPECT_TRUE(loaded.last_layer);
    EXPECT_EQ(loaded.resampled,
              concat("positions of ", before[0], "x", before[1], " patches resampled to ", after[0], "x", after[1]));
    const Tensor rounded = cast(cast(positions(from), DType::f16), DType::f32);
    EXPECT_TRUE(test::same_bytes(positions(to), nn::resampled_positions(rounded, 1, before, after)));
  };
  manual_seed(1);
  auto square = vit(16, 16), other = vit(12, 20), wide = vit(8, 24), same = vit(8, 24), turned = vit(24, 8);
  write(square);
  expect_resampled(square, other, {4, 4}, {3, 5});
  write(wide);
  EXPECT_MENTIONS(test::message_of<FormatError>([&] { load_backbone(path, other, "head"); }),
                  "tensor 'backbone.pos_embed' is f16 (1, 13, 16)");
  EXPECT_EQ(load_backbone(path, same, "head").resampled, "");
  EXPECT_TRUE(test::same_bytes(cast(positions(same), DType::f16), cast(positions(wide), DType::f16)));
  std::map<std::string, std::string> known;
  add_metadata(known, {.mean = {}, .deviation = {}, .class_names = {}, .image = {8, 24, 3}});
  write(wide, known);
  expect_resampled(wide, other, {2, 6}, {3, 5});
  expect_resampled(wide, turned, {2, 6}, {6, 2});
}

}  // namespace
}  // namespace ringtape
