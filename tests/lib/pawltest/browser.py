"""A real browser: Debian's chromium, driven through chromedriver by the WebDriver protocol (JSON over HTTP), with the standard library alone.

    with Browser(folder, size=(1280, 900), dark=True) as browser:
        browser.open("http://127.0.0.1:7295/")
        browser.wait_text("#health-word", "Healthy")

missing() says what is not installed, for tests to skip with.
"""

import base64
import http.client
import json
import os
import shutil
import subprocess

from pawltest.process import free_port
from pawltest.wait import until

PROGRAMS = {"chromium": "chromium", "chromedriver": "chromium-driver"}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1"]


def missing():
    packages = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    return f"no browser (Debian: apt-get install {' '.join(packages)})" if packages else None


class WebDriverError(Exception):
    pass


class Browser:
    def __init__(self, folder, size=(1280, 900), dark=False):
        self.port = free_port()
        self.log_path = os.path.join(folder, f"chromedriver-{self.port}.log")
        # or something of it stays in the home of whoever runs the tests
        env = {**os.environ, "XDG_CONFIG_HOME": f"{folder}/config", "XDG_CACHE_HOME": f"{folder}/cache"}
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        self.session = None
        try:
            until(self._is_up, 60, "chromedriver listens", every_s=0.1)
            options = {"args": FLAGS + [f"--user-data-dir={folder}/profile-{self.port}", f"--window-size={size[0]},{size[1]}"]}
            capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            self.session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]
            self.command("POST", "/timeouts", {"script": 60000, "pageLoad": 60000})
            self.scheme("dark" if dark else "light")
            self.resize(*size)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.session:
            try:
                self._call("DELETE", f"/session/{self.session}")
            except (OSError, WebDriverError):
                pass
            self.session = None
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _is_up(self):
        try:
            return self._call("GET", "/status")["ready"]
        except (OSError, http.client.HTTPException):
            assert self.process.poll() is None, f"chromedriver ended: {self.log_path}"
            return False

    def _call(self, method, path, body=None):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            conn.request(method, path, json.dumps(body if body is not None else {}) if method == "POST" else None)
            reply = conn.getresponse()
            value = json.loads(reply.read())["value"]
        finally:
            conn.close()
        if reply.status != 200:
            raise WebDriverError(f"{method} {path}: {value.get('error')}: {value.get('message', '')[:500]}")
        return value

    def command(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def cdp(self, name, **params):
        return self.command("POST", "/goog/cdp/execute", {"cmd": name, "params": params})

    def scheme(self, which):
        """light or dark"""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": which}])

    def resize(self, width, height):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, url):
        self.command("POST", "/url", {"url": url})

    def run(self, script, *args):
        """The value of a script with `return`."""
        return self.command("POST", "/execute/sync", {"script": script, "args": list(args)})

    def run_async(self, script, *args):
        """The same for one that calls its last argument."""
        return self.command("POST", "/execute/async", {"script": script, "args": list(args)})

    def find(self, css):
        return self.command("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self.command("POST", f"/element/{self.find(css)}/click")

    def type(self, css, keys):
        self.command("POST", f"/element/{self.find(css)}/value", {"text": keys})

    def press(self, *keys):
        """At whatever has the focus."""
        actions = [action for key in keys for action in ({"type": "keyDown", "value": key}, {"type": "keyUp", "value": key})]
        self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def text(self, css):
        return self.run("const e = document.querySelector(arguments[0]); return e ? e.textContent : null", css)

    def texts(self, css):
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", css)

    def wait_text(self, css, wanted, deadline_s=30.0):
        return until(lambda: wanted in (self.text(css) or ""), deadline_s, f"{css} says {wanted!r}", every_s=0.1)

    def wait_for(self, script, what, deadline_s=30.0):
        return until(lambda: self.run("return " + script), deadline_s, what, every_s=0.1)

    def messages(self):
        """What the console was told since the last call."""
        return [entry["message"] for entry in self.command("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.command("GET", "/screenshot")))
