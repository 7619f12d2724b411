"""The built-in page: what it is allowed to do, by its head alone; and what it shows, in a real browser (chromium; skipped with a message where there is none).

axe-core, which looks for what people with a screen reader or a keyboard would stumble over, comes from npm into the build folder; AXE_CORE names a copy of
axe.min.js that is there already.
"""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from pawltest.auth import AuthFile
from pawltest.browser import Browser, missing
from pawltest.http import Conn, lock_path, request_bytes
from pawltest.wait import until
from pawltest.waiters import LONG_TTL, Waiter, close_all, standing

AXE_PACKAGE = "axe-core@4.10"
NASTY = '<img src=x onerror="document.title=1">\'"&lt;'
ENTER, ESCAPE, TAB = "\ue007", "\ue00c", "\ue004"
needs_browser = pytest.mark.skipif(missing() is not None, reason=str(missing()))
PAGE = Path(__file__).resolve().parents[2] / "daemon" / "page"


def get(address, target, headers=()):
    with Conn(address) as conn:
        return conn.request("GET", target, headers=headers)


@pytest.fixture
def browse(tmp_path):
    """A factory of browsers, each closed at the end."""
    open_ones = []

    def start(pawld, path="/", **how):
        browser = Browser(str(tmp_path), **how)
        open_ones.append(browser)
        browser.open(f"http://{pawld.address}{path}")
        return browser

    yield start
    for browser in open_ones:
        browser.close()


def shown(browser):
    """name -> texts of its cells."""
    return {row[0]: row[1:] for row in browser.run(
        "return [...document.querySelectorAll('#rows tr')].map((tr) => [...tr.children].map((td) => td.textContent))")}


# ---------------------------------------------------------------- without a browser


@pytest.mark.parametrize("path, kind, file", [("/", "text/html; charset=utf-8", "page.html"), ("/ui.js", "text/javascript; charset=utf-8", "page.js"),
                                              ("/ui.css", "text/css; charset=utf-8", "page.css"), ("/ui.svg", "image/svg+xml", "page.svg")])
def test_the_page_may_do_nothing_but_ask_its_own_node(broker, path, kind, file):
    """Broken: something that a lock's name smuggles in runs, or the page is shown inside of another one to catch clicks."""
    reply = get(broker.pawld.address, path)
    assert reply.status == 200 and reply.headers["content-type"] == kind
    assert reply.body == (PAGE / file).read_bytes(), "what is served is what lies in the tree"
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert {policy[kind] for kind in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert reply.headers["x-content-type-options"] == "nosniff" and reply.headers["cache-control"] == "no-store"


def test_nothing_in_the_page_leads_elsewhere():
    """Broken: an operator's page asks a host on the web for a font or a script."""
    for path in sorted(PAGE.iterdir()):
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"(?:https?:)?//[\w.]+", text)) <= {"http://www.w3.org"} or path.suffix == ".js", path
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "javascript:", "localStorage"):
            assert word not in text, f"{path}: {word}"
    html = (PAGE / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", html), "nothing inline: the policy would not let it"


@pytest.mark.parametrize("host, origin, allowed", [
    ("127.0.0.1:7295", "http://127.0.0.1:7295", True), ("127.0.0.1:7295", "https://127.0.0.1:7295", True), ("localhost:7295", "http://localhost:7295", True),
    ("LOCALHOST", "http://localhost", True), ("[::1]:7295", "http://[::1]:7295", True), ("10.0.0.5", "http://10.0.0.5", True),
    ("127.0.0.1:7295", "http://127.0.0.1:8080", False), ("127.0.0.1:7295", "http://localhost:7295", False), ("127.0.0.1:7295", "null", False),
    ("pawl.internal:7295", "http://pawl.internal:7295", False), ("evil.example", "http://evil.example", False),
    ("127.0.0.1.evil.example", "http://127.0.0.1.evil.example", False), ("localhost.evil.example", "http://localhost.evil.example", False),
    ("127.0.0.1:7295", "ftp://127.0.0.1:7295", False), ("127.0.0.1:7295", "http://127.0.0.1:7295/", False),
])
def test_only_its_own_page_may_break(broker, host, origin, allowed):
    """Broken: a page on the web breaks locks of a node on localhost, by its own name or by one that was made to point there; or pawld's own page can't."""
    with Conn(broker.pawld.address) as conn:
        request = request_bytes("POST", lock_path("origin", "break"), {"reason": "x"}, {"Origin": origin}).replace(b"pawl.test", host.encode("ascii"))
        conn.send(request)
        reply = conn.read_reply()
    assert (reply.status, reply.json()["error"]) == ((404, "not_held") if allowed else (403, "forbidden"))


# ---------------------------------------------------------------- in a browser


@needs_browser
def test_the_page_shows_what_stands(world, redis, pawld, api, browse):
    """Broken: what an operator sees is not what is there; or what a client called itself becomes markup."""
    grant = api.must("acquire", "deploy/prod", ttl_ms=LONG_TTL, owner="ci-7")
    api.must("acquire", "report", ttl_ms=LONG_TTL, owner=NASTY)
    api.must("acquire", "gone", ttl_ms=50, owner="crashed")
    waiters = [Waiter(pawld.address, "deploy/prod", 60_000) for _ in range(3)]
    standing(api, "deploy/prod", 3)
    browser = browse(pawld)
    browser.wait_text("#health-word", "Healthy")
    until(lambda: len(shown(browser)) == 2, what="both locks are listed")
    assert shown(browser)["deploy/prod"][:2] == ["ci-7", str(grant["token"])] and shown(browser)["deploy/prod"][4] == "3"
    assert shown(browser)["report"][0] == NASTY
    browser.wait_for("document.querySelectorAll('#events li').length >= 5", "events are listed")
    told = browser.texts("#events li")
    assert any("ran out" in text and "gone" in text and "crashed" in text for text in told), told
    assert any(NASTY in text for text in told)
    assert browser.text("title") == "pawl" and browser.run("return document.images.length") == 1
    assert browser.text("#waiters") == "3" and "attached" in browser.text("#redis")
    left = browser.text("#rows .left")
    until(lambda: browser.text("#rows .left") != left, what="the time runs down")

    browser.wait_text("#live", "as they happen")
    api.must("release", "deploy/prod", lease_id=grant["lease_id"])
    browser.wait_for("[...document.querySelectorAll('#events li')].some((li) => /released/.test(li.textContent))", "the release is told")
    until(lambda: shown(browser).get("deploy/prod", [""])[0] == "waiter", what="the next holder is shown")

    browser.type("#prefix", "rep")
    until(lambda: list(shown(browser)) == ["report"], what="only what begins so")
    browser.type("#prefix", "//")
    browser.wait_text("#said", "prefix")
    assert browser.messages() == [] or all("400" in message for message in browser.messages()), "nothing was blocked, nothing failed"
    close_all(waiters)


@needs_browser
def test_breaking_by_keyboard_alone(pawld, api, browse):
    """Broken: the one thing that an operator came to do can't be done without a mouse, or is done to somebody else's lease."""
    api.must("acquire", "stuck/job", ttl_ms=LONG_TTL, owner="dead-host")
    browser = browse(pawld)
    until(lambda: "stuck/job" in shown(browser), what="it is listed")
    for _ in range(12):
        browser.press(TAB)
        if browser.run("return document.activeElement.getAttribute('aria-label')") == "Break stuck/job":
            break
    else:
        raise AssertionError("the button can't be reached")
    browser.press(ENTER)
    browser.wait_for("document.querySelector('#break').open", "it asks first")
    assert browser.run("return document.activeElement.id") == "reason" and browser.text("#break-owner") == "dead-host"
    browser.press(ESCAPE)
    browser.wait_for("!document.querySelector('#break').open", "Escape is no")
    assert api.inspect("stuck/job")[1]["held"]
    assert browser.run("return document.activeElement.getAttribute('aria-label')") == "Break stuck/job", "focus is back where it was"
    browser.press(ENTER)
    browser.wait_for("document.querySelector('#break').open", "it asks again")
    browser.press(*"host is dead", ENTER)
    browser.wait_text("#said", "stuck/job was broken")
    assert not api.inspect("stuck/job")[1]["held"]
    told = api.call("GET", "/v1/events?name=stuck/job")[1]["events"][-1]
    assert (told["event"], told["reason"]) == ("break", "host is dead")
    until(lambda: "stuck/job" not in shown(browser), what="it has gone from the list")


@needs_browser
def test_a_break_that_comes_too_late_does_nothing(pawld, api, browse):
    """Broken: between the look and the click another took the lock, and loses it."""
    first = api.must("acquire", "turn", ttl_ms=LONG_TTL, owner="first")
    browser = browse(pawld)
    until(lambda: "turn" in shown(browser), what="it is listed")
    browser.click("#rows button")
    browser.wait_for("document.querySelector('#break').open", "it asks first")
    api.must("release", "turn", lease_id=first["lease_id"])
    api.must("acquire", "turn", ttl_ms=LONG_TTL, owner="second")
    browser.press(*"x", ENTER)
    browser.wait_text("#break-problem", "another lease")
    assert api.inspect("turn")[1]["owner"] == "second"


@needs_browser
def test_states_of_redis(world, redis, browse):
    """Broken: at three in the morning the page looks healthy while nothing works."""
    pawld = world.pawld(redis, ["--recovery-window", "4s", "--drain-timeout", "0"])
    pawld.api().must("acquire", "kept", ttl_ms=LONG_TTL, owner="holder")
    browser = browse(pawld)
    browser.wait_text("#health-word", "Healthy")
    until(lambda: "kept" in shown(browser), what="it is listed")
    redis.kill9()
    browser.wait_text("#health-word", "Redis is away")
    assert browser.text("#redis") == "away" and "Redis is away" in browser.text("title")
    browser.wait_text("#stale", "Not up to date")
    assert "kept" in shown(browser), "what was known last stays to be seen"
    redis.start()
    browser.wait_text("#health-word", "Recovering")
    browser.wait_text("#health-word", "Healthy")
    browser.wait_text("#events", "put back")
    until(lambda: browser.run("return document.querySelector('#stale').hidden"), what="the list is up to date")
    pawld.stop()
    browser.wait_text("#health-word", "No answer")


@needs_browser
def test_without_a_stream_it_asks(world, redis, browse):
    """Broken: a node that is out of streams, or a proxy that holds them back, leaves the page as it was when it was opened."""
    pawld = world.pawld(redis, ["--max-streams", "0"])
    browser = browse(pawld)
    browser.wait_text("#live", "every few seconds")
    pawld.api().must("acquire", "polled", ttl_ms=LONG_TTL)
    until(lambda: "polled" in shown(browser), what="it is listed")
    browser.wait_text("#events", "polled")


@needs_browser
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits(pawld, api, browse, width):
    """Broken: on a phone half of it is outside."""
    api.must("acquire", "n" * 255, ttl_ms=LONG_TTL, owner="o" * 255)
    browser = browse(pawld, size=(width, 800))
    until(lambda: shown(browser), what="it is listed")
    browser.wait_for("document.querySelectorAll('#events li').length >= 2", "events are listed")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("const r = document.querySelector('#rows button').getBoundingClientRect(); return r.right") <= width


def axe_source():
    given = os.environ.get("AXE_CORE")
    if given:
        return Path(given).read_text(encoding="utf-8")
    folder = Path(os.environ.get("TOP_BUILDDIR", Path(os.environ["PAWLD"]).resolve().parent)) / "tests" / "axe-core"
    packed = sorted(folder.glob("axe-core-*.tgz"))
    if not packed:
        if shutil.which("npm") is None:
            pytest.skip("npm is missing, and with it axe-core; AXE_CORE may name a copy of axe.min.js")
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["npm", "pack", AXE_PACKAGE, "--silent"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
        packed = sorted(folder.glob("axe-core-*.tgz"))
        if done.returncode != 0 or not packed:
            pytest.skip(f"npm can't get {AXE_PACKAGE}: {done.stdout[-300:]}")
    with tarfile.open(packed[-1]) as archive:
        return archive.extractfile("package/axe.min.js").read().decode("utf-8")


@needs_browser
def test_accessibility(world, redis, browse):
    """Broken: somebody who can't see the colours, or uses a screen reader, is left out. No serious finding in any state, light or dark."""
    source = axe_source()
    pawld = world.pawld(redis, ["--recovery-window", "6s"])
    api = pawld.api()
    api.must("acquire", "deploy/prod", ttl_ms=LONG_TTL, owner="ci-7")
    api.must("acquire", "short", ttl_ms=3000, owner="")
    browser = browse(pawld)
    browser.run(source + "; return true;")
    found = []

    def look(state):
        for scheme in ("light", "dark"):
            browser.scheme(scheme)
            result = browser.run_async(
                "const done = arguments[arguments.length - 1]; axe.run(document).then(done, (e) => done({failed: String(e)}))")
            assert "failed" not in result, result
            assert len(result["passes"]) > 15, "it looked at something"
            found.extend((state, scheme, v["id"], v["impact"], [(n["target"], n["failureSummary"]) for n in v["nodes"]][:3])
                         for v in result["violations"] if v["impact"] in ("serious", "critical", "moderate"))

    browser.wait_text("#health-word", "Healthy")
    until(lambda: "deploy/prod" in shown(browser), what="it is listed")
    look("healthy")
    browser.click("#rows button")
    browser.wait_for("document.querySelector('#break').open", "the dialog")
    look("dialog")
    browser.press(ESCAPE)
    browser.click("#access summary")
    browser.resize(360, 900)
    look("narrow")
    redis.kill9()
    browser.wait_text("#health-word", "Redis is away")
    browser.wait_text("#stale", "Not up to date")
    look("away")
    redis.start()
    browser.wait_text("#health-word", "Recovering")
    look("recovering")
    browser.run("document.querySelector('#sort').previousElementSibling.remove(); document.querySelector('#health').style.color = '#9f9'")
    assert found == [], json.dumps(found, indent=1)
    browser.resize(1280, 900)
    look("spoilt")
    assert {finding[2] for finding in found} >= {"select-name", "color-contrast"}, "and it does find what is wrong"


@needs_browser
def test_an_access_token_is_typed_in_and_forgotten(world, redis, browse):
    """Broken: where pawld asks who it is, the page is of no use; or it keeps the token where others find it."""
    auth = AuthFile(world.folder())
    ops, reader = auth.rule("ops", [""], ["admin"]), auth.rule("reader", [""], ["read"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    pawld.api(token=ops).must("acquire", "guarded", ttl_ms=LONG_TTL, owner="holder")
    browser = browse(pawld)
    browser.wait_text("#health-word", "An access token is needed")
    browser.wait_for("document.querySelector('#access').open", "it asks for one")
    assert shown(browser) == {}
    browser.type("#token", reader + ENTER)
    browser.wait_text("#health-word", "Healthy")
    until(lambda: "guarded" in shown(browser), what="it is listed")
    browser.wait_text("#live", "as they happen")
    assert browser.run("return [localStorage.length, document.cookie, location.href, document.querySelector('#token').value]") == [
        0, "", f"http://{pawld.address}/", ""]
    browser.click("#rows button")
    browser.wait_for("document.querySelector('#break').open", "it asks first")
    browser.press(*"x", ENTER)
    browser.wait_text("#break-problem", "does not give break")
    browser.press(ESCAPE)
    browser.type("#token", ops + ENTER)
    browser.wait_text("#said", "token")
    browser.click("#rows button")
    browser.wait_for("document.querySelector('#break').open", "it asks again")
    browser.press(*"x", ENTER)
    browser.wait_text("#said", "guarded was broken")
    browser.click("#forget")
    browser.wait_text("#health-word", "An access token is needed")
