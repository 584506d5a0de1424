// A process's rank in its job, as launchers describe it in environment variables.
#include "comm/job/place.h"

#include <map>

#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using test::message_of;

TEST(Place, CountsTheRestartsOfItsJob) {
  std::map<std::string, std::string> all;
  const Lookup lookup = [&](const char* name) { return all.count(name) ? std::optional(all[name]) : std::nullopt; };
  EXPECT_EQ(restarts_of(lookup, false), std::nullopt);
  all = {{"RINGTAPE_RESTART", "2"}};
  EXPECT_EQ(restarts_of(lookup, false), 2);
  EXPECT_EQ(restarts_of(lookup, true), std::nullopt);                      // of this rank alone
  all = {{"TORCHELASTIC_RESTART_COUNT", "1"}, {"RINGTAPE_RESTART", "0"}};  // torchrun has started `ringtape launch`
  EXPECT_EQ(restarts_of(lookup, false), 1);
  EXPECT_EQ(restarts_of(lookup, true), 1);
  all["TORCHELASTIC_RESTART_COUNT"] = "one";
  EXPECT_EQ(message_of<UsageError>([&] { (void)restarts_of(lookup, false); }),
            "TORCHELASTIC_RESTART_COUNT=one: expected a whole number from 0 to 2147483647");
}

TEST(Place, UnderstandsTheLaunchers) {
  std::map<std::string, std::string> variables;
  const auto place = [&](std::map<std::string, std::string> all) {
    variables = std::move(all);
    return place_of(
        [&](const char* name) { return variables.count(name) ? std::optional(variables[name]) : std::nullopt; });
  };
  EXPECT_FALSE(place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));  // a batch script, which runs once

  auto p = place({{"RANK", "5"},
                  {"WORLD_SIZE", "8"},
                  {"LOCAL_RANK", "1"},
                  {"LOCAL_WORLD_SIZE", "4"},
                  {"MASTER_ADDR", "a.b"},
                  {"MASTER_PORT", "29500"}});
  EXPECT_EQ(std::tuple(p->rank, p->size, p->local_rank, p->local_size, p->one_host, p->host, p->port),
            std::tuple(5, 8, 1, 4, false, "a.b", 29500));
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(place(variables)->port, 29501);
  p = place({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}});
  EXPECT_EQ(std::tuple(p->local_rank, p->local_size, p->one_host), std::tuple(1, 2, true));

  p = place({{"OMPI_COMM_WORLD_SIZE", "4"},
             {"OMPI_COMM_WORLD_RANK", "3"},
             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(std::tuple(p->rank, p->size, p->local_rank, p->local_size, p->one_host, p->host),
            std::tuple(3, 4, 1, 2, false, ""));

  p = place({{"SLURM_STEP_NUM_TASKS", "7"},
             {"SLURM_PROCID", "6"},
             {"SLURM_LOCALID", "0"},
             {"SLURM_STEP_NUM_NODES", "3"},
             {"SLURM_NODEID", "2"},
             {"SLURM_STEP_TASKS_PER_NODE", "3(x2),1"},
             {"SLURM_STEP_NODELIST", "gpu[07-09],login"},
             {"SLURM_JOB_ID", "12"},
             {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(std::tuple(p->rank, p->size, p->local_size, p->one_host, p->host), std::tuple(6, 7, 1, false, "gpu07"));
  EXPECT_GE(p->port, 20000);
  EXPECT_LT(p->port, 30000);

  p = place({{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}, {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "1"}});
  EXPECT_EQ(std::tuple(p->rank, p->size, p->local_rank, p->local_size, p->one_host, p->port),
            std::tuple(3, 4, 1, 2, false, 29500));

  const auto error = [&](std::map<std::string, std::string> all) {
    return message_of<UsageError>([&] { place(std::move(all)); });
  };
  EXPECT_MENTIONS(error({{"RANK", "1"}}), "WORLD_SIZE is not set");
  EXPECT_MENTIONS(error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK=2: expected a whole number from 0 to 1");
  EXPECT_MENTIONS(error({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), "RANK=one");
}

// Variables of several launchers: a pod with one rank, a batch script's WORLD_SIZE, MPI libraries under Slurm, torchrun
// in each task of Slurm.
TEST(Place, TakesTheLauncherWithRanks) {
  using Variables = std::map<std::string, std::string>;
  const auto place = [](Variables all, const Variables& more = {}) {
    all.insert(more.begin(), more.end());
    return place_of([&](const char* name) { return all.count(name) ? std::optional(all[name]) : std::nullopt; });
  };
  const auto ranks = [&](const Variables& all, const Variables& more = {}) {
    const auto p = place(all, more);
    return p ? concat(p->launcher, " ", p->rank, "/", p->size) : "";
  };
  const auto error = [&](const Variables& all, const Variables& more = {}) {
    return message_of<UsageError>([&] { place(all, more); });
  };
  const Variables open_mpi = {{"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
  const Variables slurm = {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_LOCALID", "1"}};
  const Variables pmi = {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}};
  const Variables hydra = {{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}, {"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "3"}};
  const Variables pod = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}};
  const Variables batch = {{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  const Variables torchrun = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}};

  EXPECT_EQ(ranks(pod), "");
  EXPECT_EQ(ranks({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}), "");
  EXPECT_EQ(ranks(pod, {{"RINGTAPE_STORE", "a:1"}}), "torchrun 0/1");  // others may join
  EXPECT_EQ(ranks(pod, open_mpi), "mpirun 1/2");
  EXPECT_EQ(ranks(pod, hydra), "mpiexec 3/4");
  EXPECT_EQ(ranks(batch, open_mpi), "mpirun 1/2");
  EXPECT_EQ(place(batch, open_mpi)->port, 29500);
  EXPECT_EQ(ranks(batch, slurm), "srun 1/2");
  EXPECT_EQ(ranks(slurm, pmi), "srun 1/2");
  EXPECT_EQ(ranks(slurm, hydra), "mpiexec 3/4");
  EXPECT_EQ(ranks(torchrun, slurm), "torchrun 5/8");
  EXPECT_MENTIONS(error({{"RANK", "1"}, {"WORLD_SIZE", "4"}}, open_mpi),
                  "WORLD_SIZE=4, but mpirun has started 2 ranks; unset WORLD_SIZE and RANK, or start as many");
  EXPECT_MENTIONS(error(batch), "RANK is not set");
  EXPECT_MENTIONS(error(pmi), "MPI_LOCALNRANKS is not set");
  EXPECT_MENTIONS(error({{"PMIX_RANK", "0"}}), "use mpirun instead of prterun");
}

TEST(Place, FindsTheFirstOfSlurmsHosts) {
  const std::map<std::string, std::string> lists = {{"a", "a"},
                                                    {"a,b", "a"},
                                                    {"a[1-3]", "a1"},
                                                    {"a[003,7-9],b", "a003"},
                                                    {"a[1-2].x.y,b", "a1.x.y"},
                                                    {"login,a[1-2]", "login"},
                                                    {"", ""}};
  for (const auto& [list, first] : lists) EXPECT_EQ(first_host(list), first) << list;
}

}  // namespace
}  // namespace ringtape::comm
