#pragma once
// All modules.
#include "nn/activation.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/data_parallel.h"
#include "nn/dropout.h"
#include "nn/fashion_cnn.h"
#include "nn/flatten.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "nn/pool.h"
#include "nn/resnet.h"
#include "nn/sequential.h"
