#include "train/io/pytorch_tensors.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/check.h"
#include "core/printable.h"
#include "core/shape.h"
#include "train/io/sizes.h"

namespace ringtape {
namespace {

std::optional<DType> dtype_of_storage(std::string_view type) {
  constexpr std::pair<const char*, DType> kTypes[] = {{"FloatStorage", DType::f32}, {"DoubleStorage", DType::f64},
                                                      {"HalfStorage", DType::f16},  {"BFloat16Storage", DType::bf16},
                                                      {"LongStorage", DType::i64},  {"IntStorage", DType::i32},
                                                      {"ByteStorage", DType::u8},   {"BoolStorage", DType::b8}};
  for (const auto& [name, dtype] : kTypes)
    if (type == concat("torch.", name) || type == concat("torch.cuda.", name)) return dtype;
  return {};
}

// Where programs keep the weights in the dict that they save, the likeliest first.
constexpr const char* kMembers[] = {"state_dict", "model_state_dict", "model",   "model_state",
                                    "net",        "network",          "module",  "weights",
                                    "params",     "backbone",         "encoder", "state_dict_ema"};

constexpr int kDeepest = 3;  // dicts in each other, in which they are looked for

class StateDict {
  using Id = Pickle::Id;
  using Kind = Pickle::Kind;

 public:
  StateDict(const Pickle& pickle, const std::string& path) : pickle_(pickle), path_(path) {}

  bool is_storage(Id id) const { return begins_with(id, "storage"); }
  PickledStorage storage(Id id) const {
    check(is_storage(id), "refers to something else than a storage");
    const std::vector<Id>& parts = pickle_[pickle_[id].arguments].items;
    check(parts.size() >= 5 && pickle_[parts[1]].kind == Kind::global && pickle_[parts[2]].kind == Kind::text &&
              pickle_[parts[2]].text.size() <= kLongestName,
          "has a storage without a type and a short name");
    check(parts.size() == 5 || parts[5] == Pickle::kNone, "has a storage that is a part of another one");
    return {pickle_[parts[2]].text, pickle_[parts[1]].text, whole(parts[4])};
  }

  std::vector<PickledTensor> tensors(const std::string& set) {
    const std::optional<Id> chosen = set.empty() ? std::nullopt : find_member(pickle_.root, set);
    chosen ? collect(*chosen, "", 0) : collect_from(pickle_.root);
    if (!chosen && !set.empty()) {
      std::erase_if(found_, [&](const auto& named) { return !named.first.starts_with(set + "."); });
      RT_CHECK_AS(FormatError, !found_.empty(), path_, ": has no set of weights '", set, "', only ",
                  names_of(members(pickle_.root)));
    }
    std::vector<PickledTensor> out;
    for (auto& [name, tensor] : found_) out.push_back(std::move(tensor));
    return out;
  }
  std::vector<std::string> beside;  // after tensors()

 private:
  using Members = std::vector<std::pair<std::string_view, Id>>;
  struct Call {
    std::string_view function;
    std::span<const Id> arguments;
  };

  void check(bool holds, const char* what) const {
    RT_CHECK_AS(FormatError, holds, path_, ": damaged: its pickle ", what);
  }
  uint64_t whole(Id id) const {
    check(pickle_[id].kind == Kind::integer && pickle_[id].integer >= 0, "has no number where one belongs");
    return uint64_t(pickle_[id].integer);
  }
  std::vector<uint64_t> wholes(Id id) const {
    std::vector<uint64_t> out;
    check(pickle_[id].kind == Kind::tuple && pickle_[id].items.size() <= 64, "has a tensor without a shape");
    for (const Id item : pickle_[id].items) out.push_back(whole(item));
    return out;
  }
  // Whether it stands for something outside of the pickle, of this kind.
  bool begins_with(Id id, const char* kind) const {
    const std::vector<Id>& parts = pickle_[pickle_[id].arguments].items;
    return pickle_[id].kind == Kind::persistent && parts.size() >= 2 && pickle_[parts[0]].text == kind;
  }

  std::optional<Call> call(Id id) const {
    const Pickle::Value& value = pickle_[id];
    if (value.kind != Kind::call) return {};
    Id function = value.function;
    if (begins_with(function, "module")) function = pickle_[pickle_[function].arguments].items[1];  // before 2020
    if (pickle_[function].kind != Kind::global) return {};
    return Call{pickle_[function].text, pickle_[value.arguments].items};
  }
  bool is_tensor(Id id) const {
    const std::optional<Call> made = call(id);
    return made && (made->function.starts_with("torch._utils._rebuild_") ||
                    made->function.starts_with("torch._tensor._rebuild_"));
  }
  // The call that makes a tensor, without those around it that make it a parameter or a tensor with attributes.
  Call innermost(Id id) const {
    Call out = *call(id);
    for (int depth = 0; depth < 4; ++depth)
      if (out.function.starts_with("torch._utils._rebuild_parameter") && !out.arguments.empty() &&
          is_tensor(out.arguments[0]))
        out = *call(out.arguments[0]);
      else if (out.function == "torch._tensor._rebuild_from_type_v2" && out.arguments.size() >= 3)
        out = {pickle_[out.arguments[0]].text, pickle_[out.arguments[2]].items};
    return out;
  }

  PickledTensor tensor(const std::string& name, Id id) const {
    PickledTensor out;
    out.entry.name = name;
    std::string& problem = out.entry.problem;
    const auto [function, arguments] = innermost(id);
    if (function == "torch._utils._rebuild_tensor_v3" && arguments.size() >= 7)
      problem = concat("is of ", printable_name(pickle_[arguments[6]].text));
    else if (function != "torch._utils._rebuild_tensor_v2" && function != "torch._utils._rebuild_tensor")
      problem = concat("is none of plain numbers (", printable_name(function), ")");
    if (!problem.empty()) return out;
    check(arguments.size() >= 4, "has a tensor without a storage, an offset, a shape and strides");
    out.storage = storage(arguments[0]), out.offset = whole(arguments[1]);
    const std::vector<uint64_t> sizes = wholes(arguments[2]);
    out.strides = wholes(arguments[3]);
    const std::optional<DType> dtype = dtype_of_storage(out.storage.type);
    const std::optional<uint64_t> elements = declared_elements(sizes);
    if (arguments.size() > 6 && !members(arguments[6]).empty())
      problem = "is stored negated or conjugated; save x.resolve_neg() or x.resolve_conj()";
    else if (!dtype)
      problem = concat("is of ", printable_name(out.storage.type),
                       "; known are torch.FloatStorage, DoubleStorage, HalfStorage, BFloat16Storage, LongStorage, "
                       "IntStorage, ByteStorage, BoolStorage");
    else if (sizes.size() > size_t(kMaxRank))
      problem = concat("has ", sizes.size(), " axes; at most ", kMaxRank, " are supported");
    else if (elements && *elements > out.storage.count)
      problem = concat("repeats the ", out.storage.count, " numbers of its storage; save x.contiguous()");
    else if (!elements || sizes.size() != out.strides.size() || !lies_within(out, sizes, *elements))
      problem = concat("does not lie within its storage of ", out.storage.count, " numbers; the file is damaged");
    else out.entry.dtype = *dtype, out.entry.shape.assign(sizes.begin(), sizes.end());
    return out;
  }
  // Whether no number is outside of the storage.
  static bool lies_within(const PickledTensor& t, std::span<const uint64_t> sizes, uint64_t elements) {
    uint64_t last = t.offset;
    if (elements == 0) return true;
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
      uint64_t way = 0;
      if (__builtin_mul_overflow(sizes[axis] - 1, t.strides[axis], &way) || __builtin_add_overflow(last, way, &last))
        return false;
    }
    return last < t.storage.count;
  }

  // The members of a dict whose keys are texts; an OrderedDict may be made from a list of pairs.
  Members members(Id id) const {
    const Pickle::Value& value = pickle_[id];
    Members out;
    const auto add = [&](Id key, Id member) {
      if (pickle_[key].kind == Kind::text) out.emplace_back(pickle_[key].text, member);
    };
    if (value.kind != Kind::dict && value.kind != Kind::call) return out;
    seen_ += value.items.size();
    check(seen_ <= 2 * kMaxPickled, "has too many dicts in each other");
    for (size_t i = 0; i + 1 < value.items.size(); i += 2) add(value.items[i], value.items[i + 1]);
    const std::optional<Call> made = call(id);
    if (made && made->function == "collections.OrderedDict" && made->arguments.size() == 1)
      for (const Id pair : pickle_[made->arguments[0]].items)
        if (pickle_[pair].items.size() == 2) add(pickle_[pair].items[0], pickle_[pair].items[1]);
    return out;
  }

  bool holds_tensors(Id id) const {
    return std::ranges::any_of(members(id), [&](const auto& member) { return is_tensor(member.second); });
  }
  // A module: an object whose state has modules, or one of TorchScript.
  bool is_module(Id id) const {
    const std::optional<Call> made = call(id);
    return made && (made->function.starts_with("__torch__.") || has(pickle_[id].state, "_modules"));
  }
  bool has(Id id, std::string_view key) const {
    return std::ranges::any_of(members(id), [&](const auto& member) { return member.first == key; });
  }
  bool is_state(Id id) const { return holds_tensors(id) || is_module(id); }

  // The set of weights that a dict, or one that it has, has as the member of this name.
  std::optional<Id> find_member(Id id, std::string_view name, int depth = 0) {
    const Members all = members(id);
    for (const auto& [key, member] : all)
      if (key == name && !is_tensor(member))
        if (const std::optional<Id> found = find_state(member, depth + 1)) return beside.clear(), found;
    for (const auto& [key, member] : all)
      if (depth < kDeepest && !is_state(member))
        if (const std::optional<Id> found = find_member(member, name, depth + 1)) return found;
    return {};
  }
  // The set of weights in a dict, or in one that it has.
  std::optional<Id> find_state(Id id, int depth = 0) {
    const Members all = members(id);
    for (const char* const name : kMembers)
      for (const auto& [key, member] : all)
        if (key == name && depth < kDeepest)
          if (const std::optional<Id> found = find_state(member, depth + 1)) {
            for (const auto& [other, id_of_other] : all)
              if (other != key && is_state(id_of_other)) beside.push_back(printable_name(other));
            return found;
          }
    if (is_state(id)) return id;
    Members states;
    for (const auto& member : all)
      if (is_state(member.second)) states.push_back(member);
    if (states.size() == 1) return states[0].second;
    RT_CHECK_AS(FormatError, states.empty(), path_, ": has several sets of weights (", names_of(states),
                "); choose one with --weights-key NAME");
    return {};
  }
  static std::string names_of(const Members& members) {
    std::string out;
    for (const auto& [key, id] : members)
      if (out.size() < 200) out += concat(out.empty() ? "'" : ", '", printable_name(key), "'");
    return out;
  }

  void collect_from(Id root) {
    if (const std::optional<Id> state = find_state(root)) return collect(*state, "", 0);
    const std::string names = names_of(members(root));
    detail::fail<FormatError>({path_, ": has no state_dict", names.empty() ? "" : ", only ", names});
  }

  // The tensors of a state_dict or of a module, below `prefix`.
  void collect(Id id, const std::string& prefix, int depth) {
    constexpr int kDeepest = 32;
    check(depth <= kDeepest && ++visited_ <= kMaxPickledTensors && prefix.size() <= kLongestName,
          "has too many modules in each other");
    const auto add = [&](const Members& tensors) {
      for (const auto& [key, member] : tensors)
        if (is_tensor(member)) {
          check(prefix.size() + key.size() <= kLongestName && found_.size() < kMaxPickledTensors,
                "has too many tensors, or too long names");
          const std::string name = prefix + std::string(key);
          found_.insert_or_assign(name, tensor(name, member));
        }
    };
    if (!is_module(id)) return add(members(id));
    const Id state = pickle_[id].state;
    const Members parts = members(state);
    add(parts);
    for (const char* const part : {"_parameters", "_buffers"})
      if (const Id* const tensors = pickle_.find(state, part)) add(members(*tensors));
    const Id* const modules = pickle_.find(state, "_modules");
    for (const auto& [key, member] : modules ? members(*modules) : parts)
      if (is_module(member)) collect(member, prefix + std::string(key) + ".", depth + 1);
  }

  const Pickle& pickle_;
  const std::string& path_;
  size_t visited_ = 0;
  mutable size_t seen_ = 0;  // members looked at, maybe again and again: a small file can have very many
  std::map<std::string, PickledTensor> found_;
};

}  // namespace

size_t element_bytes(const PickledStorage& storage, const std::string& path) {
  if (const std::optional<DType> dtype = dtype_of_storage(storage.type)) return size_of(*dtype);
  constexpr std::pair<const char*, size_t> kOthers[] = {{"UntypedStorage", 1},
                                                        {"CharStorage", 1},
                                                        {"ShortStorage", 2},
                                                        {"ComplexFloatStorage", 8},
                                                        {"ComplexDoubleStorage", 16}};
  for (const auto& [name, bytes] : kOthers)
    if (storage.type.ends_with(concat(".", name))) return bytes;
  detail::fail<FormatError>({path, ": has numbers of an unknown type, ", printable_name(storage.type)});
}

std::map<std::string, PickledStorage> storages_of(const Pickle& pickle, const std::string& path) {
  std::map<std::string, PickledStorage> out;
  const StateDict reader(pickle, path);
  for (Pickle::Id id = 0; id < pickle.values.size(); ++id)
    if (reader.is_storage(id)) {
      PickledStorage storage = reader.storage(id);
      out.insert_or_assign(storage.key, std::move(storage));
    }
  return out;
}

std::vector<PickledTensor> tensors_of(const Pickle& pickle, const std::string& path, const std::string& set,
                                      std::vector<std::string>& beside) {
  StateDict state(pickle, path);
  std::vector<PickledTensor> out = state.tensors(set);
  beside = state.beside;
  return out;
}

}  // namespace ringtape
