#pragma once
// All modules.
#include "nn/activation.h"
<<<<<<< HEAD
#include "nn/conv2d.h"
=======
#include "nn/batch_norm.h"
>>>>>>> bn
#include "nn/dropout.h"
#include "nn/fashion_cnn.h"
#include "nn/flatten.h"
#include "nn/linear.h"
#include "nn/module.h"
<<<<<<< HEAD
#include "nn/resnet.h"
=======
#include "nn/pool.h"
>>>>>>> bn
#include "nn/sequential.h"
