"""A headless Chromium, driven through chromedriver by the W3C WebDriver protocol."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1440,1000",
]


def missing():
    """Why no browser can be started, or ""."""
    for names in (("chromedriver",), ("chromium", "chromium-browser", "google-chrome")):
        if not any(map(shutil.which, names)):
            return "{} is not installed".format(names[0])
    return ""


class Browser:
    """One browser with a new, empty profile; a context manager."""

    def __enter__(self):
        self._profile = tempfile.mkdtemp(prefix="browser-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._url = "http://127.0.0.1:{}".format(port)
        self._driver = subprocess.Popen(
            [shutil.which("chromedriver"), "--port={}".format(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait()
            self._session = self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            if hasattr(self, "_session"):
                self._call("DELETE", "/session/" + self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(30)
            shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, path):
        """Load a file and wait until its script has run to the end."""
        self._session_call("POST", "/url", {"url": path})
        return self.until("return document.documentElement.dataset.ready === 'yes'")

    def run(self, script, *arguments):
        """The value that the body of a function returns in the page."""
        return self._session_call(
            "POST", "/execute/sync", {"script": script, "args": list(arguments)}
        )

    def until(self, script, seconds=60):
        """Run ``script`` until it returns something true; returns that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.run(script)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError("never true: " + script)

    def console(self):
        """Errors of the page since the last call: script errors, violations of its policy."""
        return self._session_call("POST", "/se/log", {"type": "browser"})

    def resize(self, width, height):
        """Give the window this size in pixels."""
        self._session_call("POST", "/window/rect", {"width": width, "height": height})

    def screenshot(self):
        """The window as PNG."""
        return base64.b64decode(self._session_call("GET", "/screenshot"))

    def _wait(self):
        end = time.monotonic() + 60
        while True:
            try:
                return self._call("GET", "/status")
            except OSError:
                if time.monotonic() > end or self._driver.poll() is not None:
                    raise
                time.sleep(0.05)

    def _start(self):
        options = {
            "args": FLAGS + ["--user-data-dir=" + self._profile],
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        body = {"capabilities": {"alwaysMatch": wanted}}
        return self._call("POST", "/session", body)["sessionId"]

    def _session_call(self, method, path, body=None):
        return self._call(method, "/session/{}{}".format(self._session, path), body)

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as answer:
            return json.loads(answer.read())["value"]
