// docs/cluster/: what its files tell a scheduler to start, started here by a stand-in for it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using Lines = std::multiset<std::string>;

const std::string kFolder = std::string(RINGTAPE_SOURCE_DIR) + "/docs/cluster/";

class ClusterTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / ("ringtape_cluster_" + std::to_string(::getpid()))).string();
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/bin");
    program("probe",
            "echo \"$RANK of $WORLD_SIZE, here $LOCAL_RANK, Slurm's $SLURM_PROCID, at $MASTER_ADDR:$MASTER_PORT, \"\\\n"
            "\"token $RINGTAPE_TOKEN: $@\"\n"
            "exit ${PROBE_CODE:-0}\n");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void program(const std::string& name, const std::string& script) {
    const std::string path = folder_ + "/bin/" + name;
    write_file(path, "#!/bin/bash\n" + script);
    fs::permissions(path, fs::perms::owner_all);
  }

  // Runs a shell command in folder_, the programs above before all others; its output's lines and exit code.
  Lines shell(const std::string& command, int code = 0) {
    const std::string line =
        "cd " + folder_ + " && PATH=" + folder_ + "/bin:$PATH && { " + command + "; } >out 2>err </dev/null";
    const int status = std::system(("bash -c '" + line + "'").c_str());
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, code) << read_file(folder_ + "/err");
    Lines out;
    std::istringstream in(read_file(folder_ + "/out"));
    for (std::string each; std::getline(in, each);) out.insert(each);
    return out;
  }

  // srun and scontrol for a job of 2 nodes with 2 tasks each, both of them this machine.
  std::string slurm(const std::string& arguments, const std::string& script = "slurm.sh") {
    program("srun", R"(tasks=0
while [[ $1 == --* ]]; do
  if [[ $1 == --ntasks=* ]]; then tasks=${1#*=}; fi
  echo "$1" >>options; shift
done
code=0; pids=()
for ((i = 0; i < tasks; ++i)); do SLURM_PROCID=$i SLURM_NODEID=$((i * 2 / tasks)) "$@" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid"; ended=$?; ((ended > code)) && code=$ended; done
exit $code
)");
    program("scontrol",
            "if [ \"$1\" = requeue ]; then echo \"requeued $2\"; else printf \"localhost\\nother\\n\"; fi\n");
    return "env -u RINGTAPE_TOKEN -u RANK -u WORLD_SIZE -u LOCAL_RANK -u MASTER_ADDR -u MASTER_PORT BINARY=$BINARY "
           "SLURM_JOB_NUM_NODES=2 "
           "SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 SLURM_CPUS_PER_TASK=3 SLURM_JOB_NODELIST=node[1-2] SLURM_JOB_ID=" +
           job_ + " bash " + kFolder + script + " " + arguments;
  }

  std::string folder_;
  // Which the port is made from: tests run side by side.
  const std::string job_ = std::to_string(1'000'000 + ::getpid());
};

// The 32 digits after "token ", taken out of each line; the same in all of them.
std::string take_token(Lines& lines) {
  std::string token;
  Lines out;
  for (std::string line : lines) {
    const size_t at = line.find("token ") + 6;
    EXPECT_TRUE(token.empty() || line.substr(at, 32) == token) << line;
    token = line.substr(at, 32);
    out.insert(line.erase(at, 32));
  }
  lines = out;
  return token;
}

TEST_F(ClusterTest, SlurmStartsEveryRank) {
  Lines out = shell("BINARY=probe; " + slurm("train --epochs 2"));
  EXPECT_EQ(take_token(out).find_first_not_of("0123456789abcdef"), std::string::npos);
  Lines expected;
  for (const char* rank : {"0", "1", "2", "3"})
    expected.insert(std::string(" of , here , Slurm's ") + rank + ", at :, token : train --epochs 2");
  EXPECT_EQ(out, expected);
  const std::string options = read_file(folder_ + "/options");
  for (const char* option : {"--ntasks=4\n", "--ntasks-per-node=2\n", "--cpus-per-task=3\n"})
    EXPECT_MENTIONS(options, option);
}

TEST_F(ClusterTest, SlurmStartsALauncherANode) {
  Lines out = shell("BINARY=" RINGTAPE_BINARY "; " + slurm("launch " + folder_ + "/bin/probe --epochs 2"));
  EXPECT_EQ(take_token(out).size(), 32u);
  const std::string port = std::to_string(20000 + std::stoi(job_) % 10000);
  Lines expected;
  for (int rank = 0; rank < 4; ++rank)
    expected.insert("[" + std::to_string(rank) + "] " + std::to_string(rank) + " of 4, here " +
                    std::to_string(rank % 2) + ", Slurm's " + std::to_string(rank / 2) + ", at localhost:" + port +
                    ", token : --epochs 2");
  EXPECT_EQ(out, expected);
  const std::string options = read_file(folder_ + "/options");
  for (const char* option : {"--ntasks=2\n", "--ntasks-per-node=1\n", "--cpus-per-task=6\n"})
    EXPECT_MENTIONS(options, option);
}

TEST_F(ClusterTest, APreemptedSlurmJobIsQueuedAgain) {
  const std::string ranks = "BINARY=probe; " + slurm("train");
  const std::string launchers = "BINARY=" RINGTAPE_BINARY "; " + slurm("launch " + folder_ + "/bin/probe");
  for (const std::string& way : {ranks, launchers}) {
    EXPECT_EQ(shell("export PROBE_CODE=75; " + way).count("requeued " + job_), 1u);
    EXPECT_EQ(shell("export PROBE_CODE=5; " + way, 5).count("requeued " + job_), 0u);
    const std::string task = "export SLURM_ARRAY_JOB_ID=" + job_ + " SLURM_ARRAY_TASK_ID=2 PROBE_CODE=75; ";
    EXPECT_EQ(shell(task + way).count("requeued " + job_ + "_2"), 1u);  // the array's last task alone
  }
}

constexpr const char* kTraining =
    "train --train-size 300 --test-size 60 --epochs 2 --batch-size 32 --hidden 16 --resume --run ";

TEST_F(ClusterTest, AnElasticSlurmJobTrains) {
  const std::string work = "BINARY=" RINGTAPE_BINARY "; " + slurm(kTraining + folder_ + "/run", "slurm-elastic.sh");
  for (int job = 0; job < 2; ++job) shell(work);  // the second one, of the same name, finds nothing left to do
  EXPECT_TRUE(fs::exists(folder_ + "/run/exported/model.safetensors"));
  const std::string options = read_file(folder_ + "/options");
  for (const char* option : {"--ntasks=2\n", "--ntasks-per-node=1\n", "--cpus-per-task=6\n", "--wait=0\n",
                             "--kill-on-bad-exit=0\n", "--no-kill\n"})
    EXPECT_MENTIONS(options, option);
}

TEST_F(ClusterTest, AnElasticSlurmJobIsQueuedAgainAndJoined) {
  program("fake", "if [ $1 = store ]; then exec sleep 60; fi\necho \"$@\"\nexit $FAKE_CODE\n");
  const std::string work = "BINARY=fake; " + slurm("train", "slurm-elastic.sh");
  EXPECT_EQ(shell("export FAKE_CODE=75; " + work).count("requeued " + job_), 1u);
  EXPECT_EQ(shell("export FAKE_CODE=5; " + work, 5).count("requeued " + job_), 0u);
  const std::string join = "export FAKE_CODE=75 BINARY=fake; " + slurm("join node7:21234", "slurm-elastic.sh");
  const std::string launcher = "launch --join node7:21234 -n 2 --grace 60 --";
  EXPECT_EQ(shell(join, 75), (Lines{launcher, launcher}));
}

// The arguments of each container of a manifest.
std::vector<std::vector<std::string>> arguments_in(const std::string& file) {
  const std::string text = read_file(kFolder + file);
  std::vector<std::vector<std::string>> out;
  for (size_t at = 0; (at = text.find("args: [", at)) != std::string::npos; ++at)
    out.push_back(parse_json(text.substr(at + 6, text.find(']', at) - at - 5)).get<std::vector<std::string>>());
  return out;
}

// The store's command line and that of two pods, whose training is a short one.
TEST_F(ClusterTest, AnElasticKubernetesJobTrains) {
  const auto args = arguments_in("kubernetes-elastic.yaml");
  ASSERT_EQ(args.size(), 2u);
  const std::string port = std::to_string(20000 + ::getpid() % 10000);
  std::vector<std::string> commands;
  for (const auto& words : args) {
    std::string& command = commands.emplace_back(RINGTAPE_BINARY);
    for (const std::string& word : words) {
      if (word == "train") break;
      command += " " + (word == "29500" ? port : word == "ringtape-store:29500" ? "localhost:" + port : word);
    }
  }
  EXPECT_EQ(args[1][args[1].size() - 3], "--resume");
  const std::string pod = commands[1] + " " + kTraining + folder_ + "/run";
  shell("export RINGTAPE_TOKEN=0123456789abcdef0123456789abcdef; unset SLURM_PROCID; " + commands[0] + " & store=$!; " +
        pod + " & other=$!; " + pod + " && wait $other && wait $store");
  EXPECT_TRUE(fs::exists(folder_ + "/run/exported/model.safetensors"));
}

// The pods' command line, with their variables put in and the probe in place of the training.
TEST_F(ClusterTest, KubernetesStartsALauncherAPod) {
  const auto args = arguments_in("kubernetes.yaml");
  ASSERT_EQ(args.size(), 1u);
  std::string both;
  for (const char* node : {"0", "1"}) {
    std::string command = RINGTAPE_BINARY;
    for (std::string word : args[0]) {
      if (word == "$(NODE_RANK)") word = node;
      if (word == "ringtape-0.ringtape") word = "localhost";
      if (word == "29500") word = std::to_string(20000 + ::getpid() % 10000);
      command += " " + word + (word == "--" ? " " + folder_ + "/bin/probe" : "");
    }
    both += (both.empty() ? "" : " & ") + command;
  }
  const std::string token = "0123456789abcdef0123456789abcdef";
  Lines out = shell("export RINGTAPE_TOKEN=" + token + "; unset SLURM_PROCID; " + both +
                    "; code=$?; wait $! || code=$?; (exit $code)");
  EXPECT_EQ(take_token(out), token);
  ASSERT_EQ(out.size(), 8u);
  int rank = 0;
  for (const std::string& line : out) {
    EXPECT_MENTIONS(line, "[" + std::to_string(rank) + "] " + std::to_string(rank) + " of 8, here " +
                              std::to_string(rank % 4) + ",");
    EXPECT_MENTIONS(line, ": train --run /runs/digits --resume");
    ++rank;
  }
}

TEST_F(ClusterTest, ItsReadmeNamesFilesThatExist) {
  const std::string text = read_file(kFolder + "README.md");
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    if (name != "README.md") {
      EXPECT_MENTIONS(text, "[" + name + "](" + name + ")");
    }
  }
}

// The simulated progress is that by formula within a hundredth.
TEST_F(ClusterTest, GoodputAgreesWithItsFormulas) {
  const std::string spot =
      "--failures-per-node-day 24 --island 1 --checkpoint 2 --restart 30 --step 0.5 --detect 1 "
      "--regroup 1 --join 1 --replace 120 --hours 300";
  for (const std::string& flags : {std::string("--ranks 64 --hours 1e6"), std::string("--hours 40000"),
                                   std::string("--hours 40000 --interval 400"), "--ranks 64 " + spot}) {
    const Lines lines = shell(kFolder + "goodput.py " + flags);
    for (const std::string policy : {"live", "restart"}) {
      double simulated = 0, formula = 0;
      const auto line = lines.lower_bound(policy + ' ');
      ASSERT_TRUE(line != lines.end() && line->starts_with(policy + ' ')) << flags;
      std::istringstream(line->substr(policy.size())) >> simulated >> formula;
      EXPECT_GT(formula, 0) << flags;
      EXPECT_NEAR(simulated / formula, 1, 0.01) << policy << " " << flags;
    }
  }
  shell(kFolder + "goodput.py --ranks 12", 2);
}

}  // namespace
}  // namespace ringtape
