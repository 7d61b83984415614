"""A headless Chromium, driven over the pipe of its DevTools protocol: no port, no package beside Python's own.

    with Browser() as browser:
        page = browser.open("file:///report.html")
        page.evaluate("document.title")
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
ANSWER_SECONDS = 60
# The browser reads descriptor 3 and writes 4. These may be taken in this process, so that another one puts the pipes there and becomes the browser.
LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium():
    """The program; None: there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One process with a profile of its own, gone when it is closed."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="regen-browser-")
        to_browser, self.out = os.pipe()
        self.inp, from_browser = os.pipe()
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
            "--disable-background-networking", "--disable-extensions", "--hide-scrollbars", "--force-color-profile=srgb",
            f"--user-data-dir={self.folder}", "about:blank"]
        command = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(to_browser), str(from_browser), chromium(), *options]
        self.process = subprocess.Popen(
            command, pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number = 0
        self.buffer = b""
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        os.close(self.out)
        os.close(self.inp)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, session=None, **parameters):
        """The result of a command; what happens meanwhile is kept as events."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        limit = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < limit:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)
        raise RuntimeError(f"{method}: no answer within {ANSWER_SECONDS} s")

    def receive(self):
        while b"\0" not in self.buffer:
            data = os.read(self.inp, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, url, width=1300, height=900, dark=False, touch=False):
        """A new page that has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Page.navigate", url=url)
        page.wait_for("document.readyState === 'complete'")
        return page


class Page:
    """A page of the browser."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def evaluate(self, expression):
        """The value of an expression, a promise awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"].get("exception", answer["exceptionDetails"])))
        return answer["result"].get("value")

    def frame(self):
        """The first frame inside the page, which its sandbox puts into a process of its own."""
        limit = time.monotonic() + ANSWER_SECONDS
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        while time.monotonic() < limit:
            self.evaluate("1")  # reads what has happened
            for event in self.browser.events:
                if event.get("sessionId") == self.session and event["method"] == "Target.attachedToTarget":
                    return Page(self.browser, event["params"]["sessionId"], event["params"]["targetInfo"]["targetId"])
        raise RuntimeError("the page has no frame")

    def wait_for(self, condition):
        limit = time.monotonic() + ANSWER_SECONDS
        while not self.is_true(condition):
            if time.monotonic() > limit:
                raise RuntimeError(f"never true: {condition}")
            time.sleep(0.02)

    def is_true(self, condition):
        """Not while the page goes to another one: what is asked then has no answer."""
        try:
            return self.evaluate(f"Boolean({condition})")
        except RuntimeError as error:
            if "navigated or closed" in str(error) or "context was destroyed" in str(error):
                return False
            raise

    def press(self, key, text=None):
        """A key of the keyboard, as a person presses it."""
        codes = {"Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Home": 36, "End": 35, " ": 32}
        more = {"text": "\r" if key == "Enter" else text or key} if len(key) == 1 or key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=codes.get(key, ord(key[0].upper())), **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=codes.get(key, ord(key[0].upper())))

    def click(self, selector):
        """The middle of an element, by the mouse."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        self.click_at(x, y)

    def click_at(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path, full=False):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}, "captureBeyondViewport": True} if full else {}
        data = self.call("Page.captureScreenshot", format="png", **clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def problems(self, home="file:"):
        """Errors and warnings of the console, uncaught errors, and requests to elsewhere than home."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            what, details = event["method"], event["params"]
            if what == "Runtime.exceptionThrown":
                found.append(str(details["exceptionDetails"]))
            elif what == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
                found.append(str(details["args"]))
            elif what == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(details["entry"]["text"])
            elif what == "Network.requestWillBeSent" and not details["request"]["url"].startswith((home, "data:", "about:")):
                found.append(details["request"]["url"])
        return found
