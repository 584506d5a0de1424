"""What a run has on the disk cannot be read for a moment: one open, listing, stat or read fails while it is resumed,
once or from then on. It ends with the system's reason, or as if nothing had been; a later --resume comes to the same
end."""
import errno
import os
import re
import signal

from job import Failure
from training import RUN, draw, expect_same

CALLS = ("openat", "getdents64", "newfstatat", "statx", "read", "pread64", "readlink")
ERRORS = ("ESTALE", "EIO", "EMFILE", "ENOMEM", "EACCES")


def paths_below(run):
    """The folder, and all files and folders in it."""
    yield run
    for folder, folders, files in os.walk(run):
        yield from (os.path.join(folder, name) for name in (*folders, *files))


def trial(setting, scene, rng, number):
    training = draw(rng, ranks=(1,))
    whole, seconds = setting.references.of(training)
    run = scene.folder / "runs" / RUN
    job = scene.start(training.command())
    try:
        job.wait((0.3 + 0.6 * rng.random()) * seconds)
    except Exception:  # it still trains
        os.kill(job.pid, signal.SIGKILL)
    scene.wait(job)
    saved = (run / ".saved").exists()
    call, error = CALLS[number % len(CALLS)], rng.choice(ERRORS)
    where = f"{call} {error} {rng.randint(1, rng.choice([3, 12]))}{rng.choice(['', '+'])}"
    _, _, when = where.split()
    paths = [word for path in paths_below(run) for word in ("-P", os.path.relpath(path, scene.folder))]
    out = scene.folder / "calls"
    inject = ["strace", "-f", "-qq", *paths, "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}",
              "-o", out]
    since = scene.length()
    code = scene.run(training.command(), before=inject)
    made = re.findall(r"(\w+\(.*) \(INJECTED\)", out.read_text(errors="replace"))
    where += f", which is of {made[0][:120] if made else 'no call'}"
    scene.expect_nothing_left()
    if code < 0:
        raise Failure("unnamed", f"{where}: ended by {signal.Signals(-code).name}")
    if code != 0 and os.strerror(getattr(errno, error)) not in scene.said(since):
        raise Failure("unnamed", f"{where}: exit code {code}, and no word of '{os.strerror(getattr(errno, error))}'")
    if "from the beginning" in scene.said(since) and saved:
        raise Failure("different", f"{where}: it began anew")
    if (code := scene.run(training.command())) != 0:
        raise Failure("unusable", f"{where}: ended with {code} when it was to go on")
    expect_same(run, whole)
