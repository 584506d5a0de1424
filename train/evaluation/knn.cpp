#include "train/evaluation/knn.h"

#include <cmath>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/parallel.h"
#include "kernels/knn.h"

namespace ringtape {
constexpr double kLargestExponent = 600;  // the sum of millions of e^600 is still a double

static void check(int64_t rows, const Knn& knn) {
  RT_CHECK_AS(UsageError, knn.k >= 1 && knn.k <= rows, "kNN: ", knn.k, " neighbours of a bank of ", rows,
              rows == 1 ? " sample" : " samples", "; choose a smaller k or more training samples");
  RT_CHECK_AS(UsageError, knn.temperature > 0, "kNN: temperature ", knn.temperature, "; it must be above 0");
}

Tensor knn_scores(const Tensor& queries, const Tensor& bank, const Tensor& labels, int64_t classes, const Knn& knn) {
  const NoGrad no_grad;
  check(bank.dim(0), knn);
  const int64_t count = queries.dim(0), k = knn.k;
  const Tensor similarity({count, k}, DType::f32, queries.device()), rows({count, k}, DType::i64, queries.device());
  nearest_rows(similarity, rows, l2_normalize(queries, 1), l2_normalize(bank, 1));
  const Tensor values = similarity.copy_to(Device{}), found = rows.copy_to(Device{}),
               host_labels = contiguous(labels).copy_to(Device{});
  for (int64_t label : host_labels.span<int64_t>())
    RT_CHECK_AS(UsageError, label >= 0 && label < classes, "kNN: label ", label, " in a bank of ", classes, " classes");
  const Tensor votes = zeros({count, classes}, DType::f64);
  parallel_for(count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      const float* value = values.data<float>() + q * k;
      const double excess = std::max(0.0, value[0] / knn.temperature - kLargestExponent);
      for (int64_t i = 0; i < k; ++i)
        votes.data<double>()[q * classes + host_labels.data<int64_t>()[found.data<int64_t>()[q * k + i]]] +=
            std::exp(value[i] / knn.temperature - excess);
    }
  });
  return votes;
}

Tally knn_tally(const Features& queries, const Features& bank, int64_t classes, const Knn& knn) {
  const Tensor scores = knn_scores(queries.x, bank.x, bank.labels, classes, knn);
  Tally tally;
  tally.add(zeros({}), scores, queries.labels.copy_to(Device{}));
  tally.finish();
  return tally;
}

Tally knn_test(nn::Module& module, const Embedding& f, const Dataset& train, const std::vector<int64_t>& bank,
               const Dataset& test, const std::vector<int64_t>& queries, const Knn& knn, const EmbedOptions& options,
               comm::ProcessGroup& group, const std::function<void(const Features&, const Features&)>& look) {
  check(int64_t(bank.size()), knn);
  const Features all = embed(module, f, train, bank, options, group);
  const Features part = embed_own(module, f, test, queries, options, group);
  Tally tally;
  if (part.x.defined()) {
    tally = knn_tally(part, all, train.classes, knn);
    if (look) look(part, all);
  }
  return of_all(group, tally);
}

}  // namespace ringtape
