#include <algorithm>
#include <utility>

#include "comm/parallel/reduction/reductions.h"
#include "kernels/copy.h"

namespace ringtape::comm {

namespace {

constexpr int64_t kPartAligned = 16;  // elements

// The sum over fixed shares of a batch, in the order of their tree (comm/parallel/share_tree.h). Each rank sends the
// sums of its nodes to the ranks, a part of the elements to each, which add up the parts; then it gathers the results.
class OverShares : public Reduction {
 public:
  OverShares(ProcessGroup& group, Gradients gradients)
      : Reduction(group), all_(std::move(gradients.all)), kept_(*gradients.kept), begin_(gradients.begin),
        ranks_(group.size()) {
    for (int r = 0; r < ranks_; ++r) {
      nodes_.push_back(nodes_of(part_of(kept_.shares, ranks_, r), kept_.shares));
      most_ = std::max(most_, int64_t(nodes_.back().size()));
    }
    own_ = nodes_[size_t(group.rank())];
    if (ranks_ == 1) return;
    part_ = ((all_.size() + ranks_ - 1) / ranks_ + kPartAligned - 1) / kPartAligned * kPartAligned;
    outgoing_ = group.allocate({ranks_ * most_ * part_}, all_.dtype());
    incoming_ = group.allocate({ranks_ * most_ * part_}, all_.dtype());
    sums_ = group.allocate({ranks_ * part_}, all_.dtype());
  }

  void proceed() override {
    if (ranks_ == 1) return;
    wait();
    std::vector<ShareSum> nodes;
    for (int r = 0; r < ranks_; ++r)
      for (size_t j = 0; j < nodes_[size_t(r)].size(); ++j)
        nodes.push_back({nodes_[size_t(r)][j], place(incoming_, r, int64_t(j))});
    gather(sums_, sum_of(std::move(nodes), kept_.shares));
  }

  void finish() override {
    wait();
    if (ranks_ > 1) copy(all_, sums_.window({all_.size()}, {1}));
  }

 private:
  void begin() override {
    std::vector<ShareSum> own;
    for (const ShareSum& kept : kept_.sums) own.push_back({kept.of, kept.sum.window({all_.size()}, {1}, begin_)});
    add_share(own, {{kept_.next, kept_.next + 1}, all_}, kept_.shares);
    RT_CHECK_EQ(own.size(), own_.size());
    if (ranks_ == 1) return;
    for (size_t j = 0; j < own.size(); ++j)
      for (int r = 0; r < ranks_; ++r) {
        const int64_t from = std::min(r * part_, all_.size()), size = std::min((r + 1) * part_, all_.size()) - from;
        copy(place(outgoing_, r, int64_t(j)).window({size}, {1}), own[j].sum.window({size}, {1}, from));
      }
    exchange(incoming_, outgoing_);
  }

  // Of the node `j` of a rank, or of this rank for that one.
  Tensor place(const Tensor& all, int rank, int64_t j) const {
    return all.window({part_}, {1}, (rank * most_ + j) * part_);
  }

  const Tensor all_;
  const KeptShares& kept_;
  const int64_t begin_;
  const int ranks_;
  std::vector<std::vector<Part>> nodes_;  // of each rank
  std::vector<Part> own_;
  int64_t most_ = 0, part_ = 0;  // nodes of a rank; elements that a rank adds up
  Tensor outgoing_, incoming_, sums_;
};

}  // namespace

std::unique_ptr<Reduction> make_over_shares(ProcessGroup& group, Gradients gradients) {
  return std::make_unique<OverShares>(group, std::move(gradients));
}

}  // namespace ringtape::comm
