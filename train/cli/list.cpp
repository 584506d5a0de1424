#include <algorithm>
#include <cstdio>

#include "autograd/op.h"
#include "comm/transport/transports.h"
#include "core/env.h"
#include "core/registry.h"
#include "nn/ssl/method.h"
#include "train/cli/command.h"
#include "train/data/dataset.h"
#include "train/data/transform.h"
#include "train/io/json.h"
#include "train/loop/callback.h"
#include "train/model/models.h"
#include "train/optim/optimizers.h"
#include "train/optim/schedule.h"
#include "train/settings/presets.h"
#include "train/strategy/strategies.h"

namespace ringtape::cli {
namespace {

struct Item {
  std::string name, summary;
};
struct Kind {
  const char* name;
  std::vector<Item> (*items)();
};

std::vector<Item> plain(const std::vector<std::string>& names) {
  std::vector<Item> out;
  for (const std::string& name : names) out.push_back({name, ""});
  return out;
}

// The name and summary of each entry of a registry.
template <class Registry> std::vector<Item> entries(const Registry& registry) {
  std::vector<Item> out;
  for (const auto& entry : registry) out.push_back({entry.name, entry.summary});
  return out;
}

std::vector<Item> operations() {
  std::vector<Item> out;
  for (const Op& op : ops()) out.push_back({op.name, ""});
  return out;
}

std::vector<Item> variables() {
  std::vector<Item> out;
  for (const env::Variable& v : env::variables()) out.push_back({v.name, concat(v.meaning, " (", v.values, ")")});
  return out;
}

std::vector<Item> transports() {
  std::vector<Item> out{
      {"auto", "shm if all ranks run on one host, else tcp; on GPUs nccl if each rank has its own, else ipc"}};
  for (const comm::TransportKind& kind : comm::transports())
    out.push_back({kind.name, concat(kind.device == DeviceType::cpu ? "CPU: " : "GPU: ", kind.about,
                                     kind.make ? "" : "; not in this build")});
  return out;
}

// The presets, each with its command and the beginning of its file's first comment.
std::vector<Item> recipes() {
  std::vector<Item> out;
  for (const Preset& preset : presets()) {
    const std::string text = preset.text;
    out.push_back({preset.name, concat(preset.self_supervised ? "pretrain: " : "train: ",
                                       text.starts_with("# ") ? text.substr(2, text.find_first_of(":\n") - 2) : "")});
  }
  return out;
}

const Kind kKinds[] = {
    {"models", [] { return entries(models()); }},
    {"data", [] { return entries(datasets()); }},
    {"methods", [] { return entries(nn::methods()); }},
    {"presets", recipes},
    {"optimizers", [] { return plain(names_of(optimizers())); }},
    {"schedules", [] { return plain(names_of(schedules())); }},
    {"transforms", [] { return entries(transforms()); }},
    {"callbacks", [] { return entries(callbacks()); }},
    {"strategies", [] { return entries(strategies()); }},
    {"transports", transports},
    {"ops", operations},
    {"environment", variables},
};

void print_kind(const Kind& kind) {
  std::printf("%s:\n", kind.name);
  const std::vector<Item> items = kind.items();
  size_t width = 0;
  bool summaries = false;
  for (const Item& item : items)
    width = std::max(width, item.name.size()), summaries = summaries || !item.summary.empty();
  size_t column = 0;
  for (const Item& item : items) {
    if (summaries) {
      std::printf("  %-*s  %s\n", int(width), item.name.c_str(), item.summary.c_str());
      continue;
    }
    if (column + item.name.size() > 96) std::printf("\n"), column = 0;
    std::printf("%s%s", column ? " " : "  ", item.name.c_str());
    column += item.name.size() + 1;
  }
  if (column) std::printf("\n");
}

int run_list(const Invocation& invocation) {
  const std::string wanted = invocation.positionals.empty() ? "" : invocation.positionals[0];
  if (!wanted.empty()) find_entry(kKinds, wanted, "list", "list: ");
  Json all = Json::object();
  for (const Kind& kind : kKinds) {
    if (wanted.empty() ? kind.items().empty() : wanted != kind.name) continue;
    if (!invocation.has("json")) {
      print_kind(kind);
      continue;
    }
    auto& names = all[kind.name] = Json::list();
    for (const Item& item : kind.items()) names.push_back(item.name);
  }
  if (invocation.has("json")) std::printf("%s\n", all.text().c_str());
  return 0;
}

}  // namespace

Command list_command() {
  Command command;
  command.name = "list";
  command.summary = "Lists the available choices, of one kind or of all:";
  for (const Kind& kind : kKinds) command.summary += concat(" ", kind.name);
  command.usage = "[KIND] [FLAGS]";
  command.examples = {"list", "list models", "list ops --json"};
  command.positionals = 1;
  command.flags = {{"Output", "json", "", "print names as one JSON object", ""}};
  command.run = run_list;
  return command;
}

}  // namespace ringtape::cli
