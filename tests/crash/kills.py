"""SIGKILL at random moments, half of them while a checkpoint is written; then --resume, killed again some times, to
the end."""
import os
import re
import signal
import time

from job import Failure, kill
from training import RUN, draw, expect_same


def put_own_files(run):
    """What a user may have put beside his checkpoints, and copies of them: name -> content. It is to stay as it is."""
    texts = {"checkpoints/step-best-of-all/notes.txt": b"mine", "notes.md": b"mine", "config.toml.backup": b"mine",
             "exported/model.safetensors.sha256": b"mine", "checkpoints/step-00000099.bak/state.json": b"{}"}
    for step in sorted(name for name in os.listdir(run / "checkpoints") if name[-1].isdigit())[:1]:
        for name in os.listdir(run / "checkpoints" / step):
            texts[f"checkpoints/{step}-copy/{name}"] = (run / "checkpoints" / step / name).read_bytes()
    for name, text in texts.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(text)
    return texts


def expect_own_files(run, texts):
    for name, text in texts.items():
        if not (run / name).exists() or (run / name).read_bytes() != text:
            raise Failure("different", f"the user's own {name} is gone or changed")
    return set(texts) | {os.path.dirname(name) for name in texts if name.count("/") == 2}


def writing(checkpoints):
    """Whether a checkpoint is being written."""
    try:
        return any("tmp" in name for name in os.listdir(checkpoints))
    except OSError:
        return False


def kill_some_moment(scene, job, training, seconds, rng):
    """Kills the training, or one of its ranks, at a random moment of its `seconds`."""
    begin, delay = time.monotonic(), 0.7 * rng.random() * seconds
    aimed, victim = rng.random() < 0.5, rng.randrange(training.ranks + 1) if training.ranks > 1 else training.ranks
    while time.monotonic() - begin < delay and job.poll() is None:
        time.sleep(0.001)
    if aimed:
        while job.poll() is None and not writing(scene.folder / "runs" / RUN / "checkpoints"):
            time.sleep(0.0002)
        time.sleep(rng.random() * 0.006)
    pid = scene.ranks().get(victim, job.pid) if victim < training.ranks else job.pid
    kill(pid, signal.SIGKILL)


class Hook:
    """A command for --on-save that notes what it is called with."""

    def __init__(self, folder, seconds):
        self.program, self.called = folder / "hook", folder / "called"
        self.program.write_text(f"""#!/bin/sh
sleep {seconds:.3f}
for file in state.json model.safetensors backbone.safetensors incomplete; do [ -e "$1/$file" ] && break; done
[ -s "$1" ] && [ -f "$1" ] && file=snapshot
echo "$1 $file" >>{self.called}
""")
        self.program.chmod(0o755)
        self.environment = {"RINGTAPE_ON_SAVE": str(self.program)}

    def expect_all(self, run, kills):
        """Each that is there was given to it, complete, and again only after a kill."""
        calls = [line.split() for line in self.called.read_text().splitlines()]
        paths = [path for path, _ in calls]
        there = [f"runs/{RUN}/exported"] + [f"runs/{RUN}/checkpoints/{name}" for name in os.listdir(run / "checkpoints")
                                            if re.fullmatch(r"step-\d{8}", name)]
        there += [f"runs/{RUN}/snapshots/{name}" for name in os.listdir(run / "snapshots")]
        if lost := set(there) - set(paths):
            raise Failure("different", f"--on-save was not called for {sorted(lost)}")
        if any(file == "incomplete" for _, file in calls):
            raise Failure("different", f"--on-save was called for what is not complete: {calls}")
        if len(paths) - len(set(paths)) > kills:
            raise Failure("different", f"--on-save was called {len(paths)} times after {kills} kills: {paths}")


def trial(setting, scene, rng, number):
    training = draw(rng)
    whole, seconds = setting.references.of(training)
    run, own = scene.folder / "runs" / RUN, {}
    hook = Hook(scene.folder, 0.2 * rng.random()) if rng.random() < 0.5 else None
    environment = hook.environment if hook else {}
    for _ in range(rng.randint(1, 5)):
        job = scene.start(training.command(), env=environment)
        kill_some_moment(scene, job, training, seconds, rng)
        code = scene.wait(job)
        if code not in (0, -signal.SIGKILL, 128 + signal.SIGKILL):
            raise Failure("unusable", f"ended with {code} when it was to go on after {scene.events} kills")
        scene.expect_nothing_left()
        if code == 0:
            break
        scene.events += 1
        if not own and (run / "checkpoints").exists() and (run / "exported").exists():
            own = put_own_files(run)
    code = scene.run(training.command(), env=environment)
    if code != 0:
        raise Failure("unusable", f"ended with {code} when it was to go on after {scene.events} kills")
    scene.expect_nothing_left()
    if hook:
        hook.expect_all(run, scene.events)
    expect_same(run, whole, expect_own_files(run, own) | {".delivered"})
