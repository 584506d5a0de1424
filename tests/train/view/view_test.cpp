// What the page of `ringtape view` asks for, of runs in progress, finished, killed, copied and damaged.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/view_runs.h"
#include "train/data/image/png.h"
#include "train/evaluation/snapshot.h"
#include "train/io/json.h"
#include "train/io/safetensors.h"
#include "train/run/run_dir.h"
#include "train/view/report.h"

namespace ringtape {
namespace {

TEST_F(ViewTest, AFinishedRunIsShownWhole) {
  train("a");
  RunList list({at("runs")});
  const std::string id = at("runs/a");
  const Json run = entry(list, id);
  EXPECT_EQ((Json{run["state"], run["name"], run["model"]}), (Json{"finished", "a", "mlp"}));
  EXPECT_EQ(run["strategy"], Json("single"));
  EXPECT_EQ(run["epochs"], Json(3));
  EXPECT_EQ(run["epoch"], Json(3));
  EXPECT_EQ(run["steps_per_epoch"], Json(4));
  EXPECT_EQ(run["step"], Json(12));
  EXPECT_EQ(run["batch"], Json(16));
  EXPECT_EQ(run["best"]["split"], Json("val"));
  EXPECT_TRUE(run["seconds_left"].is_null() && run["seconds"] > Json(0));
  for (const char* split : {"train", "val", "test"}) EXPECT_EQ(run["results"][split].size(), 2u) << split;
  const Json details = parse_json(*list.run(id));
  EXPECT_EQ(details["config"]["hidden"], Json(8));
  EXPECT_EQ(details["config"]["flip"], Json(false));
  EXPECT_GT(details["log"].size(), 5u);
  const Json metrics = part(list, id, 0);
  EXPECT_EQ(metrics["lines"].size(), 6u + 2 * 3 + 2);  // steps, train and val, test and the summary
  EXPECT_EQ(metrics["next"].get<int64_t>(), int64_t(fs::file_size(at("runs/a/metrics.jsonl"))));
  EXPECT_EQ(metrics["snapshots"].get<std::vector<std::string>>(),
            (std::vector<std::string>{"epoch-0001", "epoch-0002", "epoch-0003", "test"}));
}

TEST_F(ViewTest, ASnapshotShowsWhatWasMeasured) {
  train("a");
  RunList list({at("runs")});
  double top1 = 0;
  const Json metrics = part(list, at("runs/a"), 0);
  for (const Json& line : metrics["lines"])
    if (line["split"] == Json("test")) top1 = line["top1"].get<double>();
  const Json test = parse_json(*list.snapshot(at("runs/a"), "test"));
  double all = 0, right = 0;
  for (size_t i = 0; i < test["confusion"].size(); ++i)
    for (size_t j = 0; j < test["confusion"].size(); ++j) {
      all += test["confusion"][i][j].get<double>();
      if (i == j) right += test["confusion"][i][j].get<double>();
    }
  EXPECT_EQ(all, 24);
  EXPECT_DOUBLE_EQ(right / all, top1);
  EXPECT_EQ(test["step"], Json(12));
  EXPECT_EQ(test["classes"].size(), test["confusion"].size());
  ASSERT_GT(test["samples"].size(), 0u);
  double before = 2;
  bool wrong = true;
  for (const Json& sample : test["samples"]) {  // mistakes first, the most confident ones first
    const bool is_wrong = !(sample["label"] == sample["predicted"]);
    EXPECT_TRUE(wrong || !is_wrong);
    if (is_wrong) {
      EXPECT_LE(sample["confidence"].get<double>(), before);
      before = sample["confidence"].get<double>();
    }
    wrong = is_wrong;
    EXPECT_LT(sample["image"].get<size_t>(), test["images"].size());
  }
  EXPECT_EQ(test["filters"].size(), 8u);
  EXPECT_FALSE(list.snapshot(at("runs/a"), "../a"));
  EXPECT_FALSE(list.snapshot(at("runs/a"), ""));
}

TEST_F(ViewTest, RanksCountTogetherAndOneWrites) {
  train("two", "--devices 2 --strategy ddp");
  RunList list({at("runs/two")});
  const Json snapshot = parse_json(*list.snapshot(at("runs/two"), "epoch-0002"));
  int64_t all = 0;
  for (const Json& row : snapshot["confusion"])
    for (const Json& count : row) all += count.get<int64_t>();
  EXPECT_EQ(all, 32);
  EXPECT_EQ(entry(list, at("runs/two"))["ranks"], Json(2));
  const Json runs = parse_json(list.runs());
  EXPECT_EQ(runs["first"][0], Json(at("runs/two")));
}

TEST_F(ViewTest, APretrainingShowsViewsNeighboursAndAMap) {
  const CliResult done = run(
      "pretrain --method swav --data shapes --train-size 64 --test-size 32 --batch-size 16 --model resnet18 --width 8 "
      "--epochs 1 --knn-k 5 --small-views 2 --run p");
  ASSERT_EQ(done.code, 0) << done.err;
  RunList list({at("runs")});
  const Json snapshot = parse_json(*list.snapshot(at("runs/p"), "epoch-0001"));
  EXPECT_EQ(snapshot["split"], Json("knn"));
  EXPECT_EQ(snapshot["views"].size(), 6u);
  EXPECT_EQ(snapshot["views"][0]["views"].size(), 4u);
  EXPECT_EQ(snapshot["images"][snapshot["views"][0]["views"][3].get<size_t>()]["width"], Json(16));
  EXPECT_EQ(snapshot["map"]["x"].size(), 32u);
  EXPECT_EQ(snapshot["neighbours"].size(), 6u);
  double before = 1.0001;
  for (const Json& neighbour : snapshot["neighbours"][0]["nearest"]) {
    EXPECT_LE(neighbour["similarity"].get<double>(), before);
    before = neighbour["similarity"].get<double>();
  }
  EXPECT_FALSE(snapshot.contains("confusion"));
  EXPECT_EQ(snapshot["filters"].size(), 8u);
}

TEST_F(ViewTest, FewerSnapshotsIfAskedFor) {
  train("none", "--snapshots 0");
  EXPECT_FALSE(fs::exists(at("runs/none/snapshots")));
  train("one", "--snapshots 1");
  EXPECT_EQ(snapshots_in(at("runs/one")), (std::vector<std::string>{"epoch-0001", "epoch-0003", "test"}));
  const std::string weights = read_file(at("runs/one/exported/model.safetensors"));
  train("all");
  EXPECT_EQ(read_file(at("runs/all/exported/model.safetensors")), weights);  // looking changes nothing
}

TEST_F(ViewTest, TheStateIsThatOfTheProcess) {
  const std::string path = written("r", "{\"split\":\"train\",\"epoch\":2,\"step\":20,\"images_per_s\":100}\n");
  RunList list({at("runs")});
  EXPECT_EQ(entry(list, path)["state"], Json("failed"));
  {
    const RunDir run(path, Earlier::resume);
    const Json running = entry(list, path);
    EXPECT_EQ(running["state"], Json("running"));
    EXPECT_EQ(running["seconds_left"], Json(2.0));  // 20 steps of 10 images
  }
  EXPECT_EQ(entry(list, path)["state"], Json("failed"));
  std::ofstream(path + "/metrics.jsonl", std::ios::app) << "{\"split\":\"summary\",\"epoch\":4,\"step\":40}\n";
  EXPECT_EQ(entry(list, path)["state"], Json("finished"));
  // Copied from another machine, of which no lock is seen: running while its files are new.
  const std::string copied =
      written("copied", "{\"split\":\"val\",\"epoch\":1,\"step\":10,\"top1\":0.5}\n", "elsewhere");
  EXPECT_EQ(entry(list, copied)["state"], Json("running"));
  EXPECT_EQ(entry(list, copied)["started"], Json(1767323045));
  for (const char* file : {"/metrics.jsonl", "/config.toml"})
    fs::last_write_time(copied + file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(entry(list, copied)["state"], Json("failed"));
}

TEST_F(ViewTest, LookingDoesNotKeepATrainingFromItsFolder) {
  const std::string path = written("r", "");
  std::atomic<bool> stop = false;
  std::thread looks([&] {
    while (!stop) (void)is_training(path);
  });
  for (int i = 0; i < 50; ++i) EXPECT_NO_THROW(RunDir(path, Earlier::resume));
  stop = true;
  looks.join();
}

TEST_F(ViewTest, MetricsAreGivenInWholeLinesOnce) {
  const std::string one = "{\"split\":\"train_step\",\"epoch\":1,\"step\":1}\n",
                    path = written("r", one + one + "{\"sp");
  RunList list({at("runs")});
  const Json first = part(list, path, 0);
  EXPECT_EQ(first["lines"].size(), 2u);
  EXPECT_EQ(first["next"], Json(2 * one.size()));
  EXPECT_EQ(first["more"], Json(false));
  std::ofstream(path + "/metrics.jsonl", std::ios::app) << "lit\":\"val\",\"top1\":0.25}\nnot json\n[1]\n\xff\n"
                                                        << "\xef\xbb\xbf" << one << one;
  const Json second = part(list, path, first["next"].get<int64_t>());
  EXPECT_EQ(second["lines"].size(), 2u);  // without what is no line of metrics
  EXPECT_EQ(second["lines"][0]["top1"], Json(0.25));
  EXPECT_EQ(entry(list, path)["best"]["top1"], Json(0.25));
  written("r", one);  // begun anew
  EXPECT_EQ(part(list, path, second["next"].get<int64_t>())["from"], Json(0));
  EXPECT_TRUE(entry(list, path)["best"].is_null());
  for (const int64_t from : {int64_t(1), int64_t(-5), INT64_MAX, INT64_MIN})
    EXPECT_EQ(part(list, path, from)["from"], Json(0)) << from;
}

TEST_F(ViewTest, LongFilesComeInParts) {
  std::string lines;
  const std::string pad(700, 'p');
  for (int i = 1; i <= 4000; ++i)
    lines += concat("{\"split\":\"train_step\",\"epoch\":1,\"step\":", i, ",\"pad\":\"", pad, "\"}\n");
  const std::string path = written("r", std::string(3'000'000, 'x') + "\n" + lines);  // after a line that is no line
  for (const char* other : {"s", "t", "u"}) written(other, "");  // a report of four has 2,500 lines of steps of each
  RunList list({at("runs")});
  size_t count = 0, parts = 0;
  for (int64_t at = 0;; ++parts) {
    const Json now = part(list, path, at);
    count += now["lines"].size();
    ASSERT_EQ(now["from"], Json(at));
    at = now["next"].get<int64_t>();
    if (!now["more"].get<bool>()) break;
  }
  EXPECT_EQ(count, 4000u);
  EXPECT_GT(parts, 1u);
  EXPECT_EQ(entry(list, path)["step"], Json(4000));
  const std::string all = list.everything();
  EXPECT_NE(all.find("\"step\":3999,"), std::string::npos);
  EXPECT_EQ(all.find("\"step\":3998,"), std::string::npos);  // every other is left out
}

// What is in one run must not hold the list of all up: each time that it is asked for, a part is read.
TEST_F(ViewTest, OfLongMetricsAPartIsReadForEachList) {
  const std::string line = "{\"split\":\"val\",\"epoch\":1,\"step\":10,\"top1\":0.5}\n";
  const auto lines = [&](int64_t bytes) {
    std::string out;
    while (int64_t(out.size()) < bytes) out += line;
    return out;
  };
  const std::string best = "{\"split\":\"val\",\"epoch\":1,\"step\":10,\"top1\":0.75}\n",
                    last = "{\"split\":\"summary\",\"epoch\":4,\"step\":40}\n";
  const std::string path = written("a", lines(8 * RunList::kWork) + best + lines(RunList::kWork) + last);
  const std::string good = written("good", best + last);
  RunList list({at("runs")});
  EXPECT_EQ(entry(list, path)["state"], Json("finished"));
  EXPECT_EQ(entry(list, path)["step"], Json(40));
  EXPECT_EQ(entry(list, good)["best"]["top1"], Json(0.75));
  RunList other({at("runs")});
  EXPECT_EQ(entry(other, good)["state"], Json("finished")) << "behind what is read for the first list";
  int lists = 2;
  for (; entry(other, path)["best"]["top1"] != Json(0.75); ++lists) ASSERT_LT(lists, 20);
  EXPECT_GE(lists, 3);
}

TEST_F(ViewTest, SettingsWithoutEndAreLeftOut) {
  const std::string path = written("r", "{\"split\":\"val\",\"epoch\":1,\"step\":10}\n");
  std::ofstream config(path + "/config.toml", std::ios::app);
  for (int i = 0; i < 100'000; ++i) config << "k" << i << "=1\n";
  config.close();
  RunList list({at("runs")});
  EXPECT_EQ(entry(list, path)["step"], Json(10));
  EXPECT_EQ(parse_json(*list.run(path))["config"].size(), 0u);
}

TEST_F(ViewTest, WhatCannotBeReadIsLeftOut) {
  train("good", "--epochs 1");
  const std::string path = written("bad", "");
  write_file(path + "/config.toml", "= \x01\xff[[[");
  write_file(path + "/env.json", "[[[[[[[[[[[[[[[[[[[[[[[");
  write_file(path + "/train.log", "a \xff\xfe <script>alert(1)</script>\n");
  write_file(path + "/trace.json",
             "{\"traceEvents\":[{\"ph\":\"X\",\"pid\":1e300,\"tid\":0,\"ts\":1,\"dur\":1},7,null]}");
  fs::create_directories(path + "/snapshots/epoch-0001.safetensors");
  write_file(path + "/snapshots/epoch-0002.safetensors",
             read_file(at("runs/good/snapshots/test.safetensors")).substr(0, 900));
  ASSERT_EQ(::mkfifo((path + "/metrics.csv").c_str(), 0600), 0);
  fs::remove(path + "/metrics.jsonl");
  ASSERT_EQ(::mkfifo((path + "/metrics.jsonl").c_str(), 0600), 0);  // opening it would wait for ever
  fs::create_symlink("/dev/zero", path + "/trace.json.svg");
  for (int i = 0; i < 150; ++i) fs::create_symlink(at("runs"), at(concat("runs/a", i)));  // followed once
  RunList list({at("runs")});
  EXPECT_EQ(entry(list, path)["state"], Json("failed"));
  EXPECT_TRUE(list.run(path));
  EXPECT_EQ(part(list, path, 0)["lines"].size(), 0u);
  EXPECT_FALSE(list.snapshot(path, "epoch-0002"));
  EXPECT_FALSE(list.snapshot(path, "epoch-0001"));
  EXPECT_TRUE(list.snapshot(at("runs/good"), "test"));
  fs::remove_all(at("runs/good"));
  EXPECT_FALSE(list.snapshot(at("runs/good"), "test"));
  EXPECT_EQ(part(list, at("runs/good"), 0)["lines"].size(), 0u);
  while (list.run(at("runs/good"))) parse_json(list.runs());  // looked at anew after a while
}

TEST_F(ViewTest, ForeignSnapshotsAreRefused) {
  const std::string path = written("r", "");
  fs::create_directories(path + "/snapshots");
  const std::string file = snapshot_path(path, "epoch-0001");
  Snapshot good;
  good.classes = {"a", "b"}, good.split = "val";
  good.images = zeros({2, 3, 3, 1}, DType::u8), good.labels = zeros({2}, DType::i64);
  good.samples = zeros({1}, DType::i64), good.predicted = zeros({1}, DType::i64), good.confidence = zeros({1});
  write_snapshot(file, good);
  RunList list({at("runs")});
  EXPECT_TRUE(list.snapshot(path, "epoch-0001"));
  const auto refused = [&](const char* what, const std::function<void(Snapshot&)>& change) {
    Snapshot bad = good;
    change(bad);
    write_snapshot(file, bad);
    EXPECT_FALSE(list.snapshot(path, "epoch-0001")) << what;
  };
  refused("an index that is too large", [](Snapshot& s) { s.samples = from_host(std::vector<int64_t>{2}, {1}); });
  refused("a negative index", [](Snapshot& s) { s.samples = from_host(std::vector<int64_t>{-1}, {1}); });
  refused("no predictions", [](Snapshot& s) { s.predicted = {}; });
  refused("f32 images", [](Snapshot& s) { s.images = zeros({2, 3, 3, 1}); });
  refused("images of two channels", [](Snapshot& s) { s.images = zeros({2, 3, 3, 2}, DType::u8); });
  refused("fewer labels than images", [](Snapshot& s) { s.labels = zeros({1}, DType::i64); });
  refused("a confusion of other classes", [](Snapshot& s) { s.confusion = zeros({3, 3}, DType::i64); });
  refused("views without images", [](Snapshot& s) { s.viewed = from_host(std::vector<int64_t>{9}, {1}); });
  refused("neighbours without similarity", [](Snapshot& s) {
    s.queries = zeros({1}, DType::i64), s.neighbours = zeros({1, 1}, DType::i64);
  });
  write_safetensors(file, {{"images", good.images}}, {{"other", "1"}});
  EXPECT_FALSE(list.snapshot(path, "epoch-0001"));
}

TEST_F(ViewTest, AResumedRunShowsNothingOfTheCourseThatWasGivenUp) {
  train("a");
  train("a", "--resume --epochs 5");
  EXPECT_EQ(snapshots_in(at("runs/a")).back(), "test");
  fs::remove_all(at("runs/a/checkpoints/step-00000020"));  // as if it had been killed before
  fs::remove(at("runs/a/checkpoints/last"));
  const std::string before = read_file(at("runs/a/snapshots/epoch-0005.safetensors"));
  write_file(at("runs/a/snapshots/epoch-0005.safetensors"), "other");
  train("a", "--resume --epochs 4");
  EXPECT_EQ(snapshots_in(at("runs/a")),
            (std::vector<std::string>{"epoch-0001", "epoch-0002", "epoch-0003", "epoch-0004", "test"}));
}

TEST_F(ViewTest, JudgedSeldomThereIsASnapshotAllTheSame) {
  const CliResult done =
      run("pretrain --method simclr --data shapes --train-size 32 --test-size 8 --batch-size 16 --model mlp --hidden 8 "
          "--epochs 5 --knn-k 5 --knn-every 2 --snapshots 1 --run p");
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(snapshots_in(at("runs/p")), (std::vector<std::string>{"epoch-0002", "epoch-0005"}));
}

TEST_F(ViewTest, ImagesOfAnyShape) {
  for (const char* folder : {"train/a", "train/b", "test/a", "test/b"}) {
    fs::create_directories(at(std::string("wide/") + folder));
    for (int i = 0; i < 4; ++i)
      write_file(at(concat("wide/", folder, "/", i, ".png")), encode_png(zeros({2, 256, 3}, DType::u8)));
  }
  const CliResult done =
      run("train --data imagefolder --data-dir wide --model mlp --hidden 4 --batch-size 4 --val-size 2 "
          "--epochs 1 --run w");
  ASSERT_EQ(done.code, 0) << done.err;
  RunList list({at("runs")});
  const Json snapshot = parse_json(*list.snapshot(at("runs/w"), "test"));
  EXPECT_EQ(snapshot["images"][0]["width"], Json(85));
}

TEST_F(ViewTest, WhatAHostileRunHoldsCostsNothing) {
  const std::string path = written("r", "", "elsewhere");
  write_file(at("secret"), "secret\n");
  fs::create_symlink(at("secret"), path + "/train.log");
  ASSERT_EQ(::mkfifo((path + "/.lock").c_str(), 0600), 0);
  write_file(path + "/config.toml", "epochs = 1000000000000000\nbatch-size = 1000000000000000\n");
  write_file(path + "/env.json", "{\"host\":\"elsewhere\",\"steps_per_epoch\":1000000000000000}");
  const std::string line = "{\"split\":\"train\",\"epoch\":1,\"step\":1,\"images_per_s\":1}\n";
  std::ofstream(path + "/metrics.jsonl") << line << std::string(2'600'000, 'x');  // a line without an end
  RunList list({at("runs")});
  EXPECT_GT(entry(list, path)["seconds_left"].get<double>(), 9e44);
  EXPECT_EQ(list.run(path)->find("secret"), std::string::npos);
  EXPECT_EQ(part(list, path, 0)["next"], Json(line.size()));
  EXPECT_EQ(part(list, path, int64_t(line.size()))["next"], Json(line.size()));
  EXPECT_NE(list.everything(), "");
  fs::create_directories(path + "/snapshots");
  write_safetensors(snapshot_path(path, "test"), {{"filters", zeros({9000, 1, 1, 1}, DType::u8)}},
                    {{"ringtape.snapshot", R"({"epoch":1,"step":1,"split":"test","classes":[]})"}});
  EXPECT_FALSE(list.snapshot(path, "test"));
}

TEST_F(ViewTest, WithoutItsReportARunIsDeliveredAllTheSame) {
  train("a");
  fs::remove(at("runs/a/report.html"));
  fs::create_directories(at("runs/a/report.html/own"));
  write_file((folder_ / "h").string(), "#!/bin/sh\necho $RINGTAPE_SAVED >>" + at("called") + "\n");
  fs::permissions(folder_ / "h", fs::perms::owner_all);
  const CliResult done = run("train --run a --resume --epochs 4 --on-save " + (folder_ / "h").string());
  EXPECT_EQ(done.code, 1);
  EXPECT_MENTIONS(done.err, "report.html: cannot write");
  EXPECT_NE(read_file(at("called")).find("export"), std::string::npos);
}

TEST_F(ViewTest, AReportIsOneFileWithAllOfIt) {
  train("a");
  const std::string report = read_file(at("runs/a/report.html"));
  EXPECT_NE(report.find("content=\"embedded\""), std::string::npos);
  const std::string begin = R"(<script type="application/json" id="ringtape-data">)";
  const size_t from = report.find(begin) + begin.size();
  const Json data = parse_json(report.substr(from, report.find("</script>", from) - from));
  const std::string id = "runs/a";
  EXPECT_EQ(data["runs"]["runs"][0]["state"], Json("finished"));
  EXPECT_EQ(data["metrics"][id]["lines"].size(), 14u);
  EXPECT_TRUE(data["snapshots"][id]["test"].contains("confusion"));
  for (const char* outside : {"src=\"http", "href=\"http", "url(http", "@import"})
    EXPECT_EQ(report.find(outside), std::string::npos) << outside;
  // Texts of a run are never markup.
  const std::string hostile = written("x", "");
  write_file(hostile + "/train.log", "</script><script>alert(1)</script><!--\n");
  write_report(at("r.html"), {hostile});
  EXPECT_EQ(read_file(at("r.html")).find("</script><script>alert"), std::string::npos);
  write_report(at("r.html"), {hostile}, {{"title", "<b>"}, {"heads", {"lr"}}, {"rows", {{"0.1"}}}});
  EXPECT_MENTIONS(read_file(at("r.html")), R"("comparison":{"title":"\u003cb>","heads":["lr"],"rows":[["0.1"]]})");
}

TEST_F(ViewTest, AnotherRunInItsPlaceHasNoneOfItsSnapshots) {
  train("a");
  for (const char* own : {"own.txt", "own.safetensors", "epoch-7.safetensors"})
    write_file(at(std::string("runs/a/snapshots/") + own), "mine");
  train("a", "--overwrite --snapshots 1");
  EXPECT_EQ(snapshots_in(at("runs/a")), (std::vector<std::string>{"epoch-0001", "epoch-0003", "test"}));
  for (const char* own : {"own.txt", "own.safetensors", "epoch-7.safetensors"})
    EXPECT_TRUE(fs::exists(at(std::string("runs/a/snapshots/") + own))) << own;
}

}  // namespace
}  // namespace ringtape
