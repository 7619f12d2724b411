"""What the documents tell people to type works as it stands there. That they tell of everything is tests/static/check-docs.py's to see."""

import json
import os
import re
import shlex
import sqlite3
import subprocess
import threading
import uuid

import pytest

from pawltest.pawld import run
from pawltest.wait import until

TOP = os.environ.get("TOP_SRCDIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def page(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as file:
        return file.read()


def blocks(name, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", page(name), re.M | re.S)


# ---------------------------------------------------------------- README


def test_readme_tour(world):
    """P2, P4: the first thing that a newcomer types. Broken: it doesn't show what the text around it says."""
    pawld = world.pawld(None, ["--dev"], env={"TMPDIR": world.folder()})
    script = "".join(blocks("README.md", "sh"))
    assert script.count("http://127.0.0.1:7295/") == 1
    script = script.replace("http://127.0.0.1:7295/", f"http://{pawld.address}/")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    (told,) = re.findall(r"^worker 2 has token (\d+)$", done.stdout, re.M)
    one, held, seen, listed, renewed, *both, three, lost_renew, lost_release, lost_check, broken = lines
    assert one["owner"] == "worker-1" and one["token"] > 0
    assert held["error"] == "held" and held["holder"]["owner"] == "worker-1"
    assert seen["held"] and seen["token"] == one["token"] and [lock["name"] for lock in listed["locks"]] == ["report"]
    assert renewed["token"] == one["token"] and renewed["lease_id"] == one["lease_id"]
    (released,) = [line for line in both if line.get("released")]  # the waiter's reply and this one come at the same time
    (two,) = [line for line in both if not line.get("released")]
    assert released["token"] == one["token"] and two["owner"] == "worker-2" and two["waited_ms"] > 500
    assert two["token"] == int(told) and one["token"] < two["token"] < three["token"] and three["owner"] == "worker-3"
    assert [line["error"] for line in (lost_renew, lost_release, lost_check)] == ["lease_lost"] * 3
    assert broken["broken"] and broken["holder"]["token"] == three["token"]
    (line,) = pawld.log("lock_broken")
    assert line["reason"] == "worker-3 was lost"


def test_readme_holds_a_lock_for_a_command(world):
    """Broken: the line that a newcomer copies needs what isn't there."""
    pawld = world.pawld(None, ["--dev"], env={"TMPDIR": world.folder()})
    (line,) = re.findall(r"^    (build/pawl run .*)$", page("README.md"), re.M)
    line = line.replace("build/pawl", shlex.quote(os.environ["PAWL"])).replace("sleep 5", "true")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False,
                          env={"PATH": os.environ["PATH"], "PAWL_SERVER": f"http://{pawld.address}"})
    assert done.returncode == 0 and re.fullmatch(r"working with token \d+\n", done.stdout), done


@pytest.mark.parametrize("name", ["README.md", "docs/operations.md"])
def test_sample_config_is_accepted(name, tmp_path):
    """Broken: a sample that somebody copies is refused."""
    samples = blocks(name, "conf")
    rules = tmp_path / "auth.json"
    rules.write_text(blocks("docs/security.md", "json")[0])
    rules.chmod(0o600)
    assert samples
    for sample in (sample.replace("/etc/pawl/auth.json", str(rules)) for sample in samples):
        file = tmp_path / "pawl.conf"
        file.write_text(sample)
        code, out, err = run("--config", str(file), "--check-config")
        assert code == 0 and err == "", err
        for line in sample.splitlines():
            if not line.startswith("#"):
                assert line.replace(":secret@", ":***@") in out.splitlines()


# ---------------------------------------------------------------- what packages and manifests give pawld


def test_the_packaged_config_is_accepted(tmp_path):
    """Broken: the config file that packages install stops pawld, as it is or when somebody takes the # from a line."""
    text = page("packaging/pawl.conf")
    file = tmp_path / "pawl.conf"
    lines = [line[1:] for line in text.splitlines() if re.match("#[a-z]", line)]
    assert len(lines) > 5
    for sample in [text, *[line + "\n" for line in lines if not re.match("(auth-file|tls-[a-z]+) ", line)]]:
        file.write_text(sample)
        code, _, err = run("--config", str(file), "--check-config")
        assert code == 0 and err == "", err


def test_the_options_of_the_manifests_are_accepted(tmp_path):
    """Broken: a container of a manifest ends at once with exit code 2. That all else in a manifest is sound is tests/static/check-packaging.py's to see."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing (Debian: python3-yaml)")
    for name in ("packaging/kubernetes/sidecar.yaml", "packaging/kubernetes/service.yaml"):
        things = list(yaml.safe_load_all(page(name)))
        (secret,) = [thing["stringData"] for thing in things if thing["kind"] == "Secret"]
        (pod,) = [thing["spec"]["template"]["spec"] for thing in things if thing["kind"] == "Deployment"]
        (pawld,) = [c for c in pod.get("initContainers", []) + pod["containers"] if c["name"] == "pawld"]
        rules = tmp_path / "auth.json"
        rules.write_text(secret.get("auth.json", ""))
        rules.chmod(0o600)
        args = [arg.replace("/etc/pawl-secret/auth.json", str(rules)) for arg in pawld["args"]]
        env = {}
        for variable in pawld["env"]:
            source = variable.get("valueFrom", {})
            env[variable["name"]] = variable.get("value") or secret.get(source.get("secretKeyRef", {}).get("key")) or "pod-1"
        code, out, err = run(*args, "--check-config", env=env)
        assert code == 0 and err == "", err
        assert "redis = redis://pawl:***@redis.internal:6379/0" in out.splitlines()


# ---------------------------------------------------------------- security.md


def test_sample_rules_are_accepted(tmp_path):
    """Broken: rules that somebody copies are refused."""
    samples = [json.loads(block) for block in blocks("docs/security.md", "json")]
    assert len(samples) == 2 and set(samples[0]) == {"rules"}
    one = {**samples[1], "token_sha256": "0" * 64}
    file = tmp_path / "auth.json"
    for rules in (samples[0], {"rules": [*samples[0]["rules"], one]}):
        file.write_text(json.dumps(rules))
        file.chmod(0o600)
        code, _, err = run("--auth-file", str(file), "--check-config")
        assert code == 0 and err == "", err


def test_tokens_are_made_and_sent_as_it_says(world, redis, tmp_path):
    """Broken: the recipe makes a hash that no client's token has, or curl sends something else."""
    text = page("docs/security.md")
    make = re.search(r"^    (token=\$\(openssl .*)\n    (printf .*sha256sum)", text, re.M)
    send = re.search(r"^    (printf 'header = .*\n.*acquire\?ttl=30s')$", text, re.M).group(1)
    done = subprocess.run(["sh", "-ec", f"{make.group(1)}\n{make.group(2)}\necho $token"], capture_output=True, text=True, timeout=30, check=True)
    hashed, token = done.stdout.split()[0], done.stdout.split()[-1]
    file = tmp_path / "auth.json"
    file.write_text(json.dumps({"rules": [{"name": "x", "token_sha256": hashed, "prefixes": ["billing/"], "verbs": ["acquire"]}]}))
    pawld = world.pawld(redis, ["--auth-file", str(file)])
    script = f"token={token}\n" + send.replace("127.0.0.1:7295", pawld.address)
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(done.stdout)["owner"] == "x", done


def test_certificates_are_made_as_it_says(tmp_path, world, redis):
    """Broken: what it says to type makes a certificate that pawld or curl refuses."""
    (script,) = blocks("docs/security.md", "sh")
    subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    client = script.split("\n", 3)[3].replace("cert.pem", "billing.pem").replace("key.pem", "billing.key").replace("serverAuth", "clientAuth")
    client = re.sub('-addext "subjectAltName=[^"]*"', "", client.replace("/CN=pawl.internal", "/O=Example/CN=billing"))  # as the text says
    subprocess.run(["sh", "-ec", client], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    files = ["--tls-cert", f"{tmp_path}/cert.pem", "--tls-key", f"{tmp_path}/key.pem", "--tls-client-ca", f"{tmp_path}/ca.pem"]
    rules = tmp_path / "auth.json"
    rules.write_text(json.dumps({"rules": [{"name": "x", "subject": "CN=billing,O=Example", "prefixes": ["b"], "verbs": ["acquire"]}]}))
    rules.chmod(0o600)
    pawld = world.pawld(redis, [*files, "--auth-file", str(rules)], listen=("127.0.0.1:0", "tls:127.0.0.1:0"))
    address = pawld.addresses()[1].removeprefix("tls:")
    done = subprocess.run(["curl", "-sS", "--noproxy", "*", "--cacert", "ca.pem", "--cert", "billing.pem", "--key", "billing.key", "-X", "POST",
                           f"https://{address}/v1/locks/b/acquire"], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    assert json.loads(done.stdout)["owner"] == "x", done


# ---------------------------------------------------------------- operations.md


def acl_line():
    (block,) = blocks("docs/operations.md", "redis")
    return shlex.split(block.replace(">", "'>'"))


def test_acl_line_is_enough(world, redis):
    """A user with these rights and no more serves every call, two nodes, waiting, wake-ups and a lost script cache."""
    assert redis.command(*acl_line()) == "OK"
    assert redis.url.endswith("/0")
    url = redis.url.replace("redis://", "redis://pawl:secret@").removesuffix("0") + "3"
    first, second = (world.pawld(url, ["--recovery-window", "3s"]) for _ in range(2))
    a, b = first.api(), second.api()
    holder, waiter = str(uuid.uuid4()), str(uuid.uuid4())
    got = []
    assert a.acquire("x", lease_id=holder)[0] == 200
    thread = threading.Thread(target=lambda: got.append(second.api().acquire("x", lease_id=waiter, wait_ms=20_000)))
    thread.start()
    until(lambda: a.inspect("x")[1]["waiters"] == 1, what="the waiter's place")
    assert a.call("GET", f"/v1/locks/x?lease_id={waiter}")[1]["position"] == 1
    assert a.acquire("x", wait_ms=10)[0] == 409
    assert b.renew("x", lease_id=holder)[0] == 200
    assert redis.command("SCRIPT", "FLUSH") == "OK"
    assert [lock["name"] for lock in a.list()[1]["locks"]] == ["x"]
    assert a.release("x", lease_id=holder)[0] == 200
    thread.join()
    status, reply = got[0]
    assert status == 200 and b.check("x", token=reply["token"])[0] == 200
    assert a.brk("x", reason="test")[0] == 200
    denied = redis.command("ACL", "LOG")
    assert denied == [], denied


def test_incarnation_deleted_by_hand_begins_a_new_life(redis, pawld, api):
    """P2: the operator's rule after a snapshot was restored under a running Redis."""
    (command,) = re.findall(r"^ +redis-cli (DEL .*)$", page("docs/operations.md"), re.M)
    before = api.must("acquire", "x")["token"]
    old = api.status()[1]["incarnation"]
    assert redis.command(*shlex.split(command)) == 1
    assert api.must("acquire", "y")["token"] > before + 1_000_000
    assert api.status()[1]["incarnation"] != old


# ---------------------------------------------------------------- fencing.md


def test_fencing_sql():
    """P2 at the store: take equal or greater, refuse smaller."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance BIGINT)")
    db.execute("INSERT INTO accounts VALUES (7, 100)")
    one_row, schema, many_rows = blocks("docs/fencing.md", "sql")
    alter, claim, read, write = [statement for statement in re.sub("--.*", "", one_row).split(";") if statement.strip()]
    db.execute(alter)

    def changed(statement, **values):
        return db.execute(statement, values).rowcount

    assert changed(claim, id=7, token=33) == 1
    assert db.execute(read, {"id": 7}).fetchone() == (100,)
    assert [changed(write, id=7, token=token, balance=token) for token in (33, 33, 34, 33, 34)] == [1, 1, 1, 0, 1]
    assert changed(claim, id=7, token=33) == 0
    db.execute(schema)
    assert [changed(many_rows, lock="report", token=token) for token in (33, 33, 34, 33, 34)] == [1, 1, 1, 0, 1]
    assert changed(many_rows, lock="other", token=1) == 1


def test_tests_that_security_md_names_are_there():
    """Broken: a promise of the threat model is held by a test that was renamed away, or never was."""
    tests = os.path.join(TOP, "tests")
    named = re.findall(r"`([a-z]+/[a-z_/]+\.(?:py|txt))(?::\s+(test_\w+))?`", page("docs/security.md"))
    assert len(named) > 20
    for path, test in named:
        with open(os.path.join(tests, path), encoding="utf-8") as f:
            assert not test or f"def {test}(" in f.read(), (path, test)
