#include <algorithm>

#include "nn/nn.h"
#include "train/model/families.h"

namespace ringtape {
namespace {

struct VitOptions {
  int64_t width, heads;
  int64_t depth = 12, patch = 0;
  bool sine_positions = false;
  double drop_path = 0;
  bool checkpointing = false;
};
void visit(Fields& f, VitOptions& o) {
  f("patch", o.patch,
    {.help = "rows and columns of pixels of a patch, which becomes a token; 0: 16, or 4 below 112 pixels",
     .unit = "N",
     .range = {0, 1024},
     .scope = FieldScope::weights});
  f("width", o.width,
    {.help = "numbers of a token, divided among the heads",
     .unit = "N",
     .range = {1, 8192},
     .scope = FieldScope::weights});
  f("heads", o.heads, {.help = "heads of attention", .unit = "N", .range = {1, 1024}, .scope = FieldScope::weights});
  f("depth", o.depth, {.help = "blocks", .unit = "N", .range = {1, 1000}, .scope = FieldScope::weights});
  f("sine-positions", o.sine_positions, {.help = "positions begin as sines and cosines instead of random numbers"});
  f("drop-path", o.drop_path,
    {.help = "probability that a sample skips a branch of the last block, in training; less in those before it",
     .unit = "P",
     .range = kFraction,
     .may_change = true});
  visit_checkpointing(f, o.checkpointing);
}
const VitOptions& vit(const ModelSpec& spec) { return spec.settings.as<VitOptions>(); }

int64_t patch_for(const ModelSpec& spec) {
  if (vit(spec).patch > 0) return vit(spec).patch;
  return std::min(spec.image[0], spec.image[1]) < 112 ? 4 : 16;
}

std::unique_ptr<nn::Module> make_vit(const ModelSpec& spec) {
  const VitOptions& o = vit(spec);
  const int64_t patch = patch_for(spec);
  RT_CHECK_AS(UsageError, spec.image[0] % patch == 0 && spec.image[1] % patch == 0, "--patch: images of ",
              spec.image[0], "x", spec.image[1], " are not whole patches of ", patch, "x", patch);
  RT_CHECK_AS(UsageError, o.width % o.heads == 0, "--heads: a width of ", o.width, " cannot be divided among ", o.heads,
              " heads");
  return std::make_unique<nn::VisionTransformer>(nn::VisionTransformer::Options{.image = {spec.image[0], spec.image[1]},
                                                                                .patch = patch,
                                                                                .in = spec.image[2],
                                                                                .classes = spec.classes,
                                                                                .width = o.width,
                                                                                .depth = o.depth,
                                                                                .heads = o.heads,
                                                                                .sine_positions = o.sine_positions,
                                                                                .drop_path = o.drop_path,
                                                                                .checkpointing = o.checkpointing});
}

// Its last block shows the depth by its name and the width by its shape.
NamedShape first_of_vit(const ModelSpec& spec) {
  const int64_t width = vit(spec).width;
  return {concat("blocks.", vit(spec).depth - 1, ".mlp.fc2.weight"), {width, 4 * width}};
}

std::string vit_in_pytorch(const ModelSpec& spec) {
  const VitOptions& o = vit(spec);
  return concat("from timm.models.vision_transformer import VisionTransformer\n\nmodel = VisionTransformer(img_size=(",
                spec.image[0], ", ", spec.image[1], "), patch_size=", patch_for(spec), ", in_chans=", spec.image[2],
                ", num_classes=", spec.classes, ",\n                          embed_dim=", o.width, ", depth=", o.depth,
                ", num_heads=", o.heads, ")\n");
}

ModelEntry vit_entry(const char* name, const char* summary, int64_t heads) {
  return {.name = name,
          .summary = summary,
          .settings = VitOptions{.width = 64 * heads, .heads = heads},
          .make = make_vit,
          .features = [](const ModelSpec& spec) { return vit(spec).width; },
          .image = {32, 32, 3},
          .multiple = patch_for,
          .first = first_of_vit,
          .pytorch = vit_in_pytorch,
          .repeats = true};
}

}  // namespace

std::vector<ModelEntry> vit_models() {
  return {vit_entry("vit_tiny", "vision transformer, 192 wide; patches of 16 pixels, or 4 below 112", 3),
          vit_entry("vit_small", "vision transformer, 384 wide, with the patches of vit_tiny", 6),
          vit_entry("vit_base", "vision transformer, 768 wide, with the patches of vit_tiny", 12)};
}

}  // namespace ringtape
