"""What a trial starts, and what it leaves behind."""
import os
import shutil
import signal
import subprocess
import time

MARK = "RINGTAPE_CRASH_TRIAL"  # in the environment of all that a trial starts: its folder
LAUNCHERS = ("RINGTAPE_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_")


class Failure(Exception):
    """What a trial has found; `kind` is a column of the summary."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def environment(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read().split(b"\0")
    except OSError:
        return []


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def kill(pid, signal_number):
    try:
        os.kill(pid, signal_number)
        return True
    except ProcessLookupError:
        return False


def await_that(condition, limit):
    """Whether the condition came true within `limit` seconds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


class Scene:
    """The folder of one trial, and the processes that are started in it; `binary` is ringtape."""

    def __init__(self, folder, binary):
        self.folder, self.binary = folder, binary
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "private").mkdir(parents=True, mode=0o700)
        self.log = folder / "log"
        self.shared = self.shared_memory()
        self.events = 0  # kills or connections, for the summary

    def start(self, command, before=(), env=None, stdout=None, **popen):
        """ringtape with this command line, by way of the program `before`; what it says is added to the log."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
        clean |= {MARK: str(self.folder), "XDG_RUNTIME_DIR": str(self.folder / "private"), **(env or {})}
        words = [str(w) for w in (*before, self.binary, *command)]
        with open(self.log, "ab") as log:
            log.write(f"$ {' '.join(words)}\n".encode())
            log.flush()
            return subprocess.Popen(words, cwd=self.folder, env=clean, stdin=subprocess.DEVNULL, stdout=stdout or log,
                                    stderr=log, start_new_session=True, **popen)

    def wait(self, process, limit=120):
        """The exit code; minus the signal, if one ended it."""
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure("hung", f"not ended after {limit} s: {' '.join(process.args)}") from None

    def run(self, command, **how):
        return self.wait(self.start(command, **how))

    def said(self, since=0):
        """What the log has from this place on."""
        if not self.log.exists():
            return ""
        with open(self.log, "rb") as f:
            f.seek(since)
            return f.read().decode(errors="replace")

    def length(self):
        return self.log.stat().st_size if self.log.exists() else 0

    def processes(self):
        mark = f"{MARK}={self.folder}".encode()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if mark in environment(pid) and alive(pid)]

    def ranks(self):
        """The process of each rank of a launcher."""
        out = {}
        for pid in self.processes():
            for variable in environment(pid):
                if variable.startswith(b"RANK="):
                    out[int(variable[5:])] = pid
        return out

    def guard(self, launcher):
        """The launcher's child that is no rank."""
        ranks = set(self.ranks().values())
        return next((pid for pid in self.processes() if parent(pid) == launcher and pid not in ranks), 0)

    @staticmethod
    def shared_memory():
        """What shm_open has made; folders there are other programs'."""
        files = os.scandir("/dev/shm") if os.path.isdir("/dev/shm") else ()
        return {file.name for file in files if "ringtape" in file.name and file.is_file()}

    def expect_nothing_left(self, limit=10):
        if not await_that(lambda: not self.processes(), limit):
            left = [f"{pid} {command_line(pid)}" for pid in self.processes()]
            raise Failure("left over", f"processes after {limit} s: {'; '.join(left)}")
        if not await_that(lambda: not self.shared_memory() - self.shared, limit):
            raise Failure("left over", f"/dev/shm: {self.shared_memory() - self.shared}")
        if private := os.listdir(self.folder / "private"):
            raise Failure("left over", f"private files: {private}")

    def end_all(self):
        for pid in self.processes():
            kill(pid, signal.SIGKILL)


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
