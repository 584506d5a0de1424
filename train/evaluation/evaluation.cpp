#include "train/evaluation/evaluation.h"

#include "core/registry.h"
#include "train/data/dataset.h"

namespace ringtape {

void visit(Fields& f, EvaluationOptions& o) {
  f("knn-every", o.every,
    {.help = "epochs between kNN tests of the features; 0: only at the end",
     .unit = "N",
     .range = kCount,
     .may_change = true});
  f("knn-k", o.knn.k,
    {.help = "kNN: number of neighbours that vote", .unit = "N", .range = kPositive, .may_change = true});
  f("knn-temperature", o.knn.temperature,
    {.help = "kNN: a neighbour's vote is weighted by exp(cosine / X)",
     .unit = "X",
     .range = {1e-6, kMaxCount},
     .may_change = true});
  f("knn-bank", o.bank,
    {.help = "kNN: number of training images, drawn by --seed, that are searched for neighbours; 0: all",
     .unit = "N",
     .range = kCount,
     .may_change = true});
  f("knn-data", o.data,
    {.help = "kNN: the data set with labels whose features are tested, if not the one that trains",
     .unit = "NAME",
     .choices = [] { return names_of(datasets()); },
     .automatic = "--data, if it has labels and test images"});
  f("knn-dir", o.dir,
    {.help = "folder of the files of --knn-data",
     .unit = "DIR",
     .automatic = "RINGTAPE_DATA_DIR, else ./data",
     .scope = FieldScope::rank,
     .may_change = true});
  f("online-probe", o.online_probe,
    {.help = "also train a linear layer on the features during training, and test it after each kNN test"});
}

}  // namespace ringtape
