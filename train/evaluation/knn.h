#pragma once
#include "train/evaluation/evaluation.h"
#include "train/evaluation/features.h"
#include "train/evaluation/metrics.h"

namespace ringtape {

// Votes (Q, classes), f64 on cpu:0: each of a query's k nearest rows of the bank, by cosine, adds exp(cosine /
// temperature) to the votes for its label. queries (Q, D) and bank (M, D) f32, not necessarily normalised, labels (M)
// i64, on one device. If a query's votes would overflow, all of its votes are scaled down by the same factor. Throws
// UsageError for a bank of fewer than k rows, a temperature that is not above 0, a label that is not in [0, classes).
Tensor knn_scores(const Tensor& queries, const Tensor& bank, const Tensor& labels, int64_t classes, const Knn& knn);

// Top-1 and top-5 accuracy of the votes; without a loss.
Tally knn_tally(const Features& queries, const Features& bank, int64_t classes, const Knn& knn);

// The whole protocol: the bank is f of the training samples, the queries are f of the test samples (embed()). Each rank
// of the group computes and classifies its part, and all get the total: a collective. `look` (null: none) gets the
// features: of this rank's part of the queries, and of the whole bank.
Tally knn_test(nn::Module& module, const Embedding& f, const Dataset& train, const std::vector<int64_t>& bank,
               const Dataset& test, const std::vector<int64_t>& queries, const Knn& knn,
               const EmbedOptions& options = {}, comm::ProcessGroup& group = comm::alone(),
               const std::function<void(const Features& queries, const Features& bank)>& look = {});

}  // namespace ringtape
