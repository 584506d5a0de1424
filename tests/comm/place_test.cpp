// A process's rank in its job, as launchers describe it in environment variables.
#include "comm/job/place.h"

#include <map>

#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using test::message_of;

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

  p = place({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
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

  const auto error = [&](std::map<std::string, std::string> all) {
    return message_of<UsageError>([&] { place(std::move(all)); });
  };
  EXPECT_MENTIONS(error({{"RANK", "1"}}), "WORLD_SIZE is not set");
  EXPECT_MENTIONS(error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK=2: expected a whole number from 0 to 1");
  EXPECT_MENTIONS(error({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), "RANK=one");
}

TEST(Place, FindsTheFirstOfSlurmsHosts) {
  const std::map<std::string, std::string> lists = {{"a", "a"},
                                                    {"a,b", "a"},
                                                    {"a[1-3]", "a1"},
                                                    {"a[003,7-9],b", "a003"},
                                                    {"a[1-2].x.y,b", "a1.x.y"},
                                                    {"login,a[1-2]", "login"},
                                                    {"", ""}};
  for (const auto& [list, first] : lists)
    EXPECT_EQ(first_host(list), first) << list;
}

}  // namespace
}  // namespace ringtape::comm
