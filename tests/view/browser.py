"""Drives a headless Chromium by the DevTools protocol, with nothing but Python's standard library.
Messages are JSON, each ended by a zero byte, on two pipes that the browser gets as files 3 and 4.

    with Browser() as browser:
        browser.open("http://localhost:8000/", width=1400, height=900, dark=False)
        browser.wait_for("document.title === 'ringtape'")
        browser.screenshot("page.png", element="#panels")
        print(browser.evaluate("1 + 1"), browser.errors)
"""
import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "headless_shell")
FLAGS = """--headless --remote-debugging-pipe --no-first-run --no-default-browser-check
    --disable-gpu --disable-dev-shm-usage --disable-background-networking --disable-component-update
    --disable-extensions --disable-sync --hide-scrollbars --mute-audio --no-proxy-server""".split()
PATIENCE = 30  # seconds until the browser must have answered


def find_browser():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Failed(Exception):
    pass


class Browser:
    def __init__(self, path=None):
        path = path or find_browser()
        if not path:
            raise Failed("there is no chromium")
        self.errors = []    # exceptions, console.error() and broken policies, as text
        self.network = []   # requests that failed, as text
        self._buffer = b""
        self._answers = {}
        self._events = []
        self._last = 0
        self._session = None
        self._pid = None
        self._profile = tempfile.mkdtemp(prefix="browser_")
        try:
            self._start(path)
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self._call(domain + ".enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def open(self, url, width=1400, height=900, dark=False):
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        # First an empty page: an address that differs only behind # would not be loaded again.
        for address in ("about:blank", url):
            self._events.clear()
            answer = self._call("Page.navigate", url=address)
            if answer.get("errorText"):
                raise Failed(f"{address}: {answer['errorText']}")
            self._until(lambda: "Page.loadEventFired" in self._events, address)

    def resize(self, width, height):
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=False)

    def evaluate(self, js):
        """The value of an expression. Promises are waited for."""
        answer = self._call("Runtime.evaluate", expression=js, awaitPromise=True,
                            returnByValue=True)
        if "exceptionDetails" in answer:
            raise Failed(f"{js}: {_exception(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def wait_for(self, js, seconds=60.0):
        """Waits until the expression is true, and returns its value."""
        end = time.monotonic() + seconds
        while True:
            value = self.evaluate(js)
            if value not in (None, False, 0, ""):  # elements arrive as {}, and are true there
                return value
            if time.monotonic() > end:
                raise Failed(f"not true within {seconds} s: {js}")
            time.sleep(0.05)

    def box(self, element):
        """Place of an element on the page: (x, y, width, height)."""
        js = """(name => {
            const found = document.querySelector(name), b = found && found.getBoundingClientRect();
            return b && [b.x + scrollX, b.y + scrollY, b.width, b.height];
        })"""
        found = self.evaluate(f"{js}({json.dumps(element)})")
        if not found:
            raise Failed(f"there is no {element}")
        return found

    def move(self, element, x=0.5, y=0.5):
        """Moves the pointer within an element, to shares of its width and height."""
        name = json.dumps(element)
        self.evaluate(f"document.querySelector({name}).scrollIntoView({{ block: 'center' }})")
        left, top, width, height = self.box(element)
        across, down = self.evaluate("[scrollX, scrollY]")
        place = {"x": left + x * width - across, "y": top + y * height - down}
        self._call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        return place

    def click(self, element, x=0.5, y=0.5):
        place = self.move(element, x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._mouse(kind, place)

    def drag(self, element, x0, x1):
        """Drags the pointer over an element, from one share of its width to another."""
        place = self.move(element, x0)
        left, _, width, _ = self.box(element)
        self._mouse("mousePressed", place)
        for x in ((x0 + x1) / 2, x1):
            place = dict(place, x=left + x * width)
            self._mouse("mouseMoved", place, buttons=1)
        self._mouse("mouseReleased", place)

    def _mouse(self, kind, place, **more):
        self._call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place,
                   **more)

    def press(self, key):
        """Presses a key: a character, or a name such as ArrowLeft."""
        text = {"text": key} if len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path, element=None, full=False, margin=0):
        """Writes a PNG of what is seen, of an element, or of the full page."""
        options = {"format": "png"}
        if element:
            x, y, width, height = self.box(element)
            options["clip"] = {"x": x - margin, "y": y - margin, "width": width + 2 * margin,
                               "height": height + 2 * margin, "scale": 1}
            options["captureBeyondViewport"] = True
        width, height = self.evaluate("[innerWidth, innerHeight]")
        if full:
            self.resize(width, max(height, self.evaluate("document.documentElement.scrollHeight")))
            time.sleep(0.3)  # charts are drawn anew a little after the window's size has changed
        data = self._call("Page.captureScreenshot", **options)["data"]
        if full:
            self.resize(width, height)
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        """Ends the browser, whatever state it is in."""
        if self._pid:
            try:
                self._session = None
                self._send("Browser.close")
            except (OSError, Failed):
                pass
            if not self._gone(3):
                os.killpg(self._pid, signal.SIGKILL)
                self._gone(5)
            for fd in (self._out, self._in):
                os.close(fd)
            self._pid = None
        shutil.rmtree(self._profile, ignore_errors=True)

    def _start(self, path):
        flags = FLAGS + ["--user-data-dir=" + self._profile]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        pipes = [*os.pipe(), *os.pipe()]
        # Numbers of 10 and above, so that none is 3 or 4 itself.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in pipes]
        theirs_in, self._out, self._in, theirs_out = high
        for fd in pipes:
            os.close(fd)
        quiet = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, quiet, fd) for fd in (0, 1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)]
        environment = dict(os.environ, HOME=self._profile)
        self._pid = os.posix_spawn(path, [path, *flags, "about:blank"], environment,
                                   file_actions=actions, setpgroup=0)
        for fd in (theirs_in, theirs_out, quiet):
            os.close(fd)

    def _gone(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                return True
            time.sleep(0.02)
        return False

    def _send(self, method, **params):
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data):]
        return self._last

    def _call(self, method, **params):
        number = self._send(method, **params)
        self._until(lambda: number in self._answers, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def _until(self, done, what):
        end = time.monotonic() + PATIENCE
        while not done():
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise Failed(f"chromium does not answer: {what}")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise Failed(f"chromium has ended: {what}")
            *messages, self._buffer = (self._buffer + data).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message):
        if "id" in message:
            self._answers[message["id"]] = message
            return
        method, params = message["method"], message["params"]
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(_exception(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            parts = [str(a.get("value", a.get("description", a["type"]))) for a in params["args"]]
            self.errors.append("console: " + " ".join(parts))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            entry = params["entry"]
            text = f"{entry['text']} {entry.get('url', '')}"
            (self.network if entry["source"] == "network" else self.errors).append(text)


def _exception(details):
    return details.get("exception", {}).get("description") or details.get("text", "exception")
