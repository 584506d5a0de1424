#!/usr/bin/env python3
"""The report of tests/gpu.sh: report.md and results.json from what its stages left.

    tests/gpu/report.py STAGES OUT

STAGES holds machine.tsv (name, value), stages.tsv (name, result, seconds, note, command) and logs/, one a stage,
named like it with - for spaces. Logs that end in the middle are read as far as they go.
"""
import json
import os
import re
import sys

FIGURES = {"step": "steps", "train": "trainings", "method": "methods"}  # kinds of stages whose last line has figures
WANTED = 85  # percent of the copy bandwidth that a memory-bound kernel should reach


def read(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def read_tsv(path):
    return [line.split("\t") for line in read(path).splitlines()]


def read_stages(folder):
    keys = ("name", "result", "seconds", "note", "command")
    stages = [dict(zip(keys, row)) for row in read_tsv(os.path.join(folder, "stages.tsv"))]
    for s in stages:
        s["seconds"] = round(float(s["seconds"]), 1)
        s["log"] = os.path.join(folder, "logs", s["name"].replace(" ", "-") + ".log")
    return stages


def read_tests(log):
    """Of ctest's output: how many passed and were skipped, and those that failed with what they said."""
    line = re.compile(r"^ *\d+/\d+ Test +#\d+: (.+?) \.*\s*(Passed|\S*.*\*\*\*.*?) +[\d.]+ sec")
    out = {"passed": 0, "skipped": 0, "failures": []}
    said = None
    for text in log.splitlines():
        at = line.match(text)
        if at and at[2] == "Passed":
            out["passed"] += 1
        elif at and "Skipped" in at[2]:
            out["skipped"] += 1
        elif at:
            said = []
            out["failures"].append({"name": at[1], "how": at[2].replace("***", " ").strip(" :"), "output": said})
            continue
        if at or re.match(r"^ +Start +\d+:|^\d+% tests passed", text):
            said = None
        elif said is not None:
            said.append(text)
    for failure in out["failures"]:
        failure["message"] = excerpt(failure.pop("output"))
    return out


def read_program(log):
    """The same of GoogleTest's output. A test that has begun and not ended is where the program did."""
    out = {"passed": 0, "skipped": 0, "failures": []}
    name, said = None, []
    for text in log.splitlines():
        at = re.match(r"\[( RUN      |       OK |  SKIPPED |  FAILED  )\] (\S+\.\S+)(, where .*)?$", text)
        if not at:
            said.append(text)
            continue
        if at[1] == " RUN      ":
            name, said = at[2], []
            continue
        if name != at[2]:
            continue  # of the list at the end
        name = None
        if at[1] == "  FAILED  ":
            out["failures"].append({"name": at[2], "how": "Failed", "message": excerpt(said)})
        else:
            out["passed" if at[1] == "       OK " else "skipped"] += 1
    if name:
        out["failures"].append({"name": name, "how": "the program ended in it", "message": excerpt(said)})
    return out


def add_tests(tests, name, more):
    all_of_it = tests.setdefault(name, {"passed": 0, "skipped": 0, "failures": []})
    for key in all_of_it:
        all_of_it[key] += more[key]


def excerpt(lines, most=14):
    """From the first failure on; else the last lines; without what GoogleTest says around it."""
    begin = next((i for i, text in enumerate(lines) if text.endswith(": Failure")), None)
    end = next((i for i, text in enumerate(lines) if text.startswith("[  FAILED  ]")), len(lines))
    said = [text for text in lines[begin or 0:end] if text.strip()
            and not re.match(r"\[[-= ]|Running main|Note: ", text)]
    return "\n".join(said[-most:] if begin is None else said[:most]) or "(no output)"


def read_ops(path):
    """Of Google Benchmark's JSON, which stops in the middle where the program was stopped."""
    text = read(path)
    try:
        data = json.loads(text)
    except ValueError:
        end = text.rfind("}")
        try:
            data = json.loads(text[:end + 1] + "]}")
        except ValueError:
            return None
    rows = []
    for b in data.get("benchmarks", []):
        row = {"name": b["name"].rsplit("/", 1)[0]}
        if b.get("error_occurred"):
            row["error"] = b.get("error_message", "failed")
        else:
            row.update(us=b["real_time"], issue_us=b.get("issue_us"), percent=b.get("%peak"),
                       gb_per_s=b.get("GB/s"), gflop_per_s=b.get("GFLOP/s"))
        rows.append(row)
    context = data.get("context", {})
    peaks = {key: round(float(value), 1) for key, value in context.items() if key.startswith("peak")}
    return {"dtype": context.get("dtype"), "peaks": peaks, "rows": rows}


def last_json(log):
    for text in reversed(log.splitlines()):
        if text.startswith("{"):
            try:
                return json.loads(text)
            except ValueError:
                pass
    return None


def read_losses(log):
    """Of a training's JSON lines: the loss of each step."""
    lines = [json.loads(text) for text in log.splitlines()
             if text.startswith('{"split":"train_step"') and text.endswith("}")]
    return [float(line["loss"]) for line in lines]  # also "nan" and "inf"


def read_errors(log):
    """What compute-sanitizer reports, without the stacks."""
    return [m[1] for m in re.finditer(r"^========= ((?!COMPUTE-SANITIZER)[A-Z].*)", log, re.M)]


def collect(folder):
    stages = read_stages(folder)
    results = {"machine": dict(row for row in read_tsv(os.path.join(folder, "machine.tsv")) if len(row) == 2),
               "stages": stages,
               "tests": {}, "sanitizers": {}, "ceilings": [], "ops": [], "steps": [], "trainings": [], "methods": [],
               "curves": []}
    for s in stages:
        log = read(s.pop("log"))
        kind = s["name"].split()[0]
        program = re.fullmatch(r"(own )?cuda_\w+_test", s["name"])
        if program:
            add_tests(results["tests"], "own convolutions and products" if program[1] else "cuda tests",
                      read_program(log))
        elif s["name"] == "other tests":
            results["tests"][s["name"]] = read_tests(log)
        elif kind in ("memcheck", "racecheck", "initcheck", "synccheck"):
            results["sanitizers"][s["name"]] = read_errors(log)
        elif kind in ("ceilings", "ops"):
            ops = read_ops(os.path.join(folder, "logs", s["name"].replace(" ", "-") + ".json"))
            results[kind] += [ops] if ops else []
        elif kind in FIGURES:
            figures = last_json(log) if s["result"] == "passed" else None
            results[FIGURES[kind]] += [dict(figures, stage=s["name"])] if figures else []
        elif kind == "curve":
            results["curves"].append({"stage": s["name"], "losses": read_losses(log)})
        elif kind == "pytorch" and s["result"] == "passed":
            results["pytorch"] = log
        if s["result"] == "failed":
            s["tail"] = "\n".join(log.splitlines()[-15:])
    return results


def table(head, rows):
    """Markdown; figures to the right."""
    right = [bool(rows) and all(re.match(r"^-?[\d.,]*$", str(row[i])) for row in rows) for i in range(len(head))]
    lines = [head, ["--:" if r else "---" for r in right]] + rows
    return ["| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
            for line in lines] + [""]


def number(x, digits=1):
    return "" if x is None else f"{float(x):,.{digits}f}"  # also of "nan" and "inf"


def waits_for_host(row):
    return " (waits for the host)" if row["issue_us"] and row["issue_us"] > 0.9 * row["us"] else ""


def peaks_of(ops):
    return ", ".join(f"{name} {value:,.0f}" for name, value in ops["peaks"].items())


def ops_section(ops):
    out = [f"## Kernels, {ops['dtype']}", "",
           f"Measured in the same run: {peaks_of(ops)}. A call's time is the host's to issue it or the "
           "GPU's to do it, whichever is longer. GB/s count each operand once; of a backward pass only dy and the "
           "gradients.", ""]
    fine = [r for r in ops["rows"] if "error" not in r]
    rows = [[r["name"], number(r["us"]), number(r["issue_us"])] +
            [number(r[key], 0) for key in ("gb_per_s", "gflop_per_s", "percent")] for r in fine]
    out += table(["workload", "us", "issue us", "GB/s", "GFLOP/s", "% of peak"], rows)
    for direction in ("forward", "backward"):
        slow = [r for r in fine if r["gb_per_s"] and r["percent"] < WANTED and r["name"].endswith(direction)]
        total = sum(1 for r in fine if r["gb_per_s"] and r["name"].endswith(direction))
        slow.sort(key=lambda r: r["percent"])
        listed = ", ".join(f"{r['name']} {r['percent']:.0f}" + waits_for_host(r) for r in slow) or "none"
        out += [f"{direction.capitalize()} below {WANTED} % of the copy bandwidth, {len(slow)} of {total}: {listed}.",
                ""]
    failed = [[r["name"], r["error"]] for r in ops["rows"] if "error" in r]
    return out + (table(["failed", "error"], failed) if failed else [])


def failures_section(results):
    out = []
    for name, tests in results["tests"].items():
        counts = f"{tests['passed']} passed, {len(tests['failures'])} failed, {tests['skipped']} skipped"
        out += [f"## {name.capitalize()}: {counts}", ""]
        for f in tests["failures"]:
            out += [f"`{f['name']}` ({f['how']})", "```", f["message"], "```", ""]
    if results["sanitizers"]:
        out += ["## compute-sanitizer", ""]
        rows = [[name, "; ".join(dict.fromkeys(errors))[:600] or "no summary"]
                for name, errors in results["sanitizers"].items()]
        out += table(["run", "what it reported"], rows)
    others = [s for s in results["stages"] if s.get("tail") and s["name"] != "other tests"]
    if others:
        out += ["## Ends of the logs of other stages that failed", ""]
    for s in others:
        out += [f"{s['name']}: `{s['command']}`", "```", s["tail"], "```", ""]
    return out


def training_section(results):
    out = []
    if results["steps"]:
        out += ["## Training steps", "",
                "On random images (`ringtape bench step`); of a method without labels with its views, an image "
                "counted once.", ""]
        out += table(["network", "precision", "device", "batch", "steps/s", "images/s", "forward us", "backward us",
                      "optimizer us", "peak MB"], [
            [s["stage"].split()[1], s["precision"], s["device"], s["batch_size"], number(s["steps_per_s"]),
             number(s["images_per_s"], 0)] +
            [number(1e6 * s["phases"][part + "_s"]) for part in ("forward", "backward", "optimizer")]
                          + [number(s["peak_bytes"] / 1e6)]
            for s in results["steps"]])
    if results["trainings"]:
        out += ["## Trainings", "", "The loader included.", ""]
        out += table(["network", "precision", "data", "device", "steps", "seconds", "images/s", "test loss",
                      "test top-1"], [
            t["stage"].split()[1:] + [t["step"], number(t["seconds"]), number(t["images_per_s"], 0),
                                      number(t["loss"], 4), number(t["top1"], 4)]
            for t in results["trainings"]])
    if results["methods"]:
        out += ["## Methods without labels", "",
                "The recipe of lightly's benchmark of 2022, an epoch of it: the loss, and top-1 by the "
                "nearest neighbours of the features.", ""]
        out += table(["method", "data", "device", "train s", "images/s", "loss", "kNN top-1", "peak MB"], [
            m["stage"].split()[1:] + [number(m["train_s"]), number(m["images_per_s"], 0), number(m["train_loss"], 4),
                                      number(m["top1"], 4), number(m["peak_bytes"] / 1e6)]
            for m in results["methods"]])
    if "pytorch" in results:
        out += ["## Beside PyTorch", "", "```", results["pytorch"].rstrip(), "```", ""]
    return out + curves_section(results["curves"])


def curves_section(curves):
    curves = [c for c in curves if c["losses"]]
    if len(curves) < 2:
        return []
    steps = min(len(c["losses"]) for c in curves)
    out = ["## The same steps on each device", "", "Losses of single steps, from the same weights.", ""]
    out += table(["step"] + [" ".join(c["stage"].split()[1:]) for c in curves],
                 [[step] + [number(c["losses"][step - 1], 6) for c in curves]
                  for step in sorted({1, 2, 5, 10, 20, 30, 40, steps}) if step <= steps])
    apart = max(abs(a - b) / abs(b) for a, b in zip(curves[0]["losses"], curves[1]["losses"]) if b)
    return out + [f"The most that they differ by, of {steps} steps: {100 * apart:.3g} %.", ""]


def write_report(results):
    counts = {}
    for s in results["stages"]:
        counts[s["result"]] = counts.get(s["result"], 0) + 1
    gpu = results["machine"].get("GPU", "a GPU").split(",")[0]
    counted = ", ".join(f"{n} {result}" for result, n in counts.items())
    out = [f"# ringtape on {gpu}", "", f"Stages: {counted}.", ""]
    out += table(["what", "value"], [list(row) for row in results["machine"].items()])
    out += ["## Stages", ""]
    out += table(["stage", "result", "seconds", "note"], [[s["name"], s["result"], s["seconds"], s["note"]]
                                                          for s in results["stages"]])
    out += failures_section(results)
    if results["ceilings"]:
        out += ["## What a copy and a matrix product reach", ""]
        out += table(["dtype", "measured"], [[ops["dtype"], peaks_of(ops)] for ops in results["ceilings"]])
    for ops in results["ops"]:
        out += ops_section(ops)
    return "\n".join(out + training_section(results))


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    results = collect(sys.argv[1])
    os.makedirs(sys.argv[2], exist_ok=True)
    with open(os.path.join(sys.argv[2], "results.json"), "w") as f:
        json.dump(results, f, indent=1)
    with open(os.path.join(sys.argv[2], "report.md"), "w") as f:
        f.write(write_report(results))


if __name__ == "__main__":
    main()
