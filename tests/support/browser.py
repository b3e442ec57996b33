"""Headless Chromium, driven over its debugging pipe: no driver, no port, no library.

    with Browser() as browser:
        page = browser.page()
        page.open("http://127.0.0.1:7080/")
        page.value("document.title")

Everything that a page writes to its console, throws or asks of the network is kept.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    """Use as a context manager; needs Debian's chromium (deploy/packages/install_deps browser)."""

    def __init__(self, timeout=60):
        self.timeout = timeout
        self.profile = tempfile.mkdtemp(prefix="fsdp-browser-")
        self.buffer = b""
        self.next_id = 0
        self.events = []

    def __enter__(self):
        to_browser, self.write_fd = os.pipe()
        self.read_fd, from_browser = os.pipe()
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        # The browser reads file descriptor 3 and writes 4.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.write_fd)
        os.close(self.read_fd)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, session=None, **parameters):
        """The command's result; what happens meanwhile goes into `events`."""
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        wanted = self.next_id
        while True:
            answer = self.read(self.timeout)
            if answer is None:
                raise AssertionError(f"the browser does not answer {method}")
            if answer.get("id") != wanted:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise AssertionError(f"{method}: {answer['error']}")
            return answer["result"]

    def read(self, timeout):
        """The next message; None when there is none in time."""
        deadline = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.read_fd], [], [], left)[0]:
                return None
            data = os.read(self.read_fd, 1 << 20)
            if not data:
                raise AssertionError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def page(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        return page


class Page:
    """A tab."""

    KEYS = {"Tab": 9, "Enter": 13, "Space": 32}

    def __init__(self, browser, session):
        self.browser = browser
        self.session = session

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def open(self, url):
        # What came before belongs to the page before.
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'", url)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, what, timeout=30):
        deadline = time.monotonic() + timeout
        while True:
            try:
                value = self.value(expression)
            except AssertionError:
                value = None  # it is between two pages
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout} s: {what}")
            time.sleep(0.05)

    def press(self, key):
        code = self.KEYS[key]
        text = {"text": "\r"} if key == "Enter" else {"text": " "} if key == "Space" else {}
        name = " " if key == "Space" else key
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=key, windowsVirtualKeyCode=code)

    def look(self, width, height, dark, phone=False):
        """Sets the size of the screen and the preferred colours."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def drain(self):
        while True:
            event = self.browser.read(0.05)
            if event is None:
                return
            self.browser.events.append(event)

    def _events(self, *methods):
        self.drain()
        return [event["params"] for event in self.browser.events
                if event.get("sessionId") == self.session and event.get("method") in methods]

    def complaints(self):
        """What the page wrote to its console, threw or was refused, and the dialogs that it opened."""
        found = self._events("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")
        logged = [event["entry"] for event in self._events("Log.entryAdded")]
        return found + [entry for entry in logged if entry["level"] in ("error", "warning")]

    def forget(self):
        """What happened so far is not told again."""
        self.drain()
        self.browser.events.clear()

    def requests(self):
        """The addresses that were asked for."""
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]
