#pragma once
#include <map>
#include <string>
#include <vector>

namespace ringtape {

// What networks call their last layer.
inline constexpr const char* kLastLayers[] = {"fc", "linear", "head", "classifier"};

// Where a network's tensors are in a file of another program, by their names.
struct NamesInFile {
  std::map<std::string, std::string> of;  // the file's names by the network's; those that are absent are not in it
  std::string prefix;                     // in the file before all names of the network, such as "module.encoder_q."
  std::vector<std::string> unknown;       // the file's names that look like parts of such a network, but of another one
  std::vector<std::string> rest;          // all others
};

// Finds a network's tensors in a file of torchvision, timm, lightly, solo-learn, Lightning or others:
// - below a prefix, such as "backbone." or "module.encoder_q."; if there are several, one that is not called an average
//   ("encoder_k", "momentum", "target", "teacher", "ema", "averag"), of these "backbone.", else the shortest;
//   names of wrapped modules ("_orig_mod.", "_fsdp_wrapped_module.") are read without that;
// - in an nn.Sequential of the network's children ("0.weight" for "conv1.weight"), as lightly's examples make it;
// - with "shortcut." instead of "downsample.", and the last layer as "fc", "linear", "head" or "classifier", which may
//   be beside the network.
// `network`: its names in their order; `last`: its last layer, empty if it has none. Where no place has all names but
// the last layer's and the counters of batches, which may be absent, `of` is that of the place with most of them.
NamesInFile find_names(const std::vector<std::string>& file, const std::vector<std::string>& network,
                       const std::string& last);

// The names for a message: "module.encoder_k.* (122), module.queue"; those that begin alike are counted. Those that
// share the prefix are told apart by what comes after it. At most 8 are named.
std::string summary_of(const std::vector<std::string>& names, const std::string& prefix);

}  // namespace ringtape
