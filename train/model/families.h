#pragma once
#include <vector>

#include "train/model/models.h"

// The models that are here from the start, a file for each family.
namespace ringtape {

ModelEntry mlp_model();
ModelEntry fashion_cnn_model();
std::vector<ModelEntry> resnet_models();
ModelEntry wide_resnet_model();
ModelEntry cifar_net_model();
std::vector<ModelEntry> vit_models();

void visit_checkpointing(Fields& f, bool& on);  // --checkpointing, of networks of blocks

}  // namespace ringtape
