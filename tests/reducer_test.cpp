// Gradients summed over ranks while backward() runs.
#include "comm/reducer.h"

#include "autograd/ops.h"
#include "nn/nn.h"
#include "tests/comm_worlds.h"
#include "tests/support.h"
#include "train/optim/flat_parameters.h"

namespace ringtape::comm {
namespace {
}
}
