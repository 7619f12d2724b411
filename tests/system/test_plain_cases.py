"""Each script begins with the plain case, for speed. What it does there has to be what the rest of the script would have done: both are run on the same
data, made by dice, and what they answer, leave and publish is compared. (P1, P2, P6, P8)"""

import collections
import random
import re
from pathlib import Path

import pytest

from pawltest.fixtures import LONG
from pawltest.redis import RespError

SCRIPTS = Path(__file__).resolve().parents[2] / "daemon" / "scripts"
ROUNDS = 20000 if LONG else 1000

OWN, OTHER, DEAD = "a1" * 8, "b2" * 8, "c3" * 8
IDS = [f"{i}0000000-0000-4000-8000-00000000000{i}" for i in range(4)]
INCARNATION, GENERATION, LIFE = "inc 1 2 7", "3", "7"
HEAD = "pawl:{0}:"
LAST_FENCE = 9007199254740991
SLACK_MS = 4000  # what may pass between the two runs; the times of a scene are farther apart than that
READ = {"string": ["GET"], "list": ["LRANGE", 0, -1], "zset": ["ZRANGE", 0, -1, "WITHSCORES"], "hash": ["HGETALL"], "set": ["SMEMBERS"]}
NUMBER = re.compile(r"\d+")
MARKS = ("-- The plain case", "-- include library.lua")


def included(text):
    return re.sub(r"(?m)^-- include (\S+)$", lambda found: (SCRIPTS / found.group(1)).read_text(), text)


def forms(name):
    """The script, the script without what stands between the marks, and the script up to where that ends."""
    text = (SCRIPTS / name).read_text()
    begin, end = (text.index(mark) for mark in MARKS)
    return included(text), included(text[:begin] + text[end:]), included(text[:end]) + "return {'general'}"


class Scene:
    """What Redis holds before a run: one lock, its queue and the nodes, by dice."""

    def __init__(self, dice):
        self.dice = dice
        self.fence = dice.choice([*[90] * 12, LAST_FENCE - 2, LAST_FENCE - 1, LAST_FENCE])
        self.window = dice.random() < 0.1
        self.holder = dice.choice(IDS[:2])
        self.stored = dice.choice([*[None] * 4, *[self.lease()] * 12, "released 5", "delayed 5", "nonsense", "list"])
        self.waiting = [(ticket, who, self.claims(who)) for ticket, who in enumerate(dice.sample(IDS[1:], dice.choice([0, 0, 0, 1, 1, 2, 3])), 10)]

    def lease(self):
        dice = self.dice
        terms = dice.choice(["", "", "", "", "", "", "+200000", "+60000", "+0.140000"])
        return f"{self.holder} {dice.choice([3, 50])} {dice.choice([OWN, OWN, OWN, OTHER])}{terms} 4 1000 {dice.choice(['', 'an owner', 'x 1 y'])}"

    def claims(self, who):
        claim = f"{OWN} {LIFE} {self.confirm(who)}"
        others = [f"{OTHER} {LIFE} 1", f"{DEAD} {LIFE} 1", f"{OWN} 6 1", f"{OWN} {LIFE} 99"]
        return self.dice.choice([claim, claim, claim, f"{self.dice.choice(others)},{claim}", f"{claim},{self.dice.choice(others)}", self.dice.choice(others)])

    @staticmethod
    def confirm(who):
        return 20 + IDS.index(who)

    def key(self, kind):
        return f"{HEAD}{kind}:l"

    def commands(self):
        """What makes it."""
        yield "FLUSHALL",
        yield "SET", HEAD + "incarnation", INCARNATION
        yield "SET", HEAD + "fence", self.fence
        yield "SET", f"{HEAD}node:{OWN}", GENERATION
        yield "SET", f"{HEAD}node:{OTHER}", "1"
        if self.window:
            yield "SET", HEAD + "recovery", "1"
        if self.stored == "list":
            yield "RPUSH", self.key("lock"), "x"
        elif self.stored:
            yield "SET", self.key("lock"), self.stored, "PX", 90000
        for ticket, who, claims in self.waiting:
            yield "ZADD", self.key("queue"), ticket, who
            yield "HSET", self.key("waiters"), who, claims

    def keys(self):
        return [HEAD + "incarnation", HEAD + "fence", f"{HEAD}node:{OWN}", HEAD + "recovery", self.key("lock"), self.key("queue")]

    def arguments(self):
        return [INCARNATION, self.dice.choice(["9", str(self.fence)]), GENERATION]

    def tail(self, who):
        return f"{OWN}{self.dice.choice(['', '', '+10000', '+0.140000'])} {self.confirm(who)} 2000 {self.dice.choice(['', 'me'])}"


def release(scene):
    who = scene.dice.choice([scene.holder, scene.holder, scene.holder, IDS[3]])
    rider = []
    if scene.dice.random() < 0.6:
        next_one = scene.waiting[0][1] if scene.waiting and scene.dice.random() < 0.8 else IDS[2]
        rider = [next_one, scene.dice.choice([20000, 40000]), scene.tail(next_one)]
    return [who, OWN, scene.dice.choice([0, 3, 50]), *rider]


def renew(scene):
    who = scene.dice.choice([scene.holder, scene.holder, scene.holder, IDS[3]])
    return [who, scene.dice.choice([20000, 40000]), OWN, scene.dice.choice([4, 31]), scene.dice.choice([0, 3, 50]), "1000 an owner", "0 0"]


def acquire(scene):
    who = scene.dice.choice(IDS)
    return [who, scene.dice.choice([20000, 40000]), scene.tail(who), f"{scene.dice.choice('012')} {scene.dice.choice([0, 5])} 2 0 77"]


class Bench:
    """Runs a script on a scene and tells what it answered, what stands then, and what was published."""

    def __init__(self, redis):
        self.conn, self.hears = redis.connect(), redis.connect()
        self.hears.command("SUBSCRIBE", f"{HEAD}node:{OTHER}")
        self.hears.send("SUBSCRIBE", "end")
        self.hears.read()

    def all(self, commands):
        commands = list(commands)
        for command in commands:
            self.conn.send(*command)
        answers = []
        for _ in commands:
            try:
                answers.append(self.conn.read())
            except RespError as error:
                answers.append(str(error).split(" ")[0])
        return answers

    def run(self, scene, body, args):
        answer, keys = self.all([*scene.commands(), ("EVAL", body, len(scene.keys()), *scene.keys(), *args), ("KEYS", "*")])[-2:]
        kinds = self.all(("TYPE", key) for key in keys)
        left = self.all((*READ[kind][:1], key, *READ[kind][1:]) for key, kind in zip(keys, kinds))
        return answer, dict(zip(keys, zip(left, self.all(("PTTL", key) for key in keys)))), self.published()

    def published(self):
        self.conn.command("PUBLISH", "end", "")
        heard = []
        while True:
            _, channel, text = self.hears.read()
            if channel == "end":
                return heard
            heard.append(text)


def near(a, b):
    """Times may differ by what passes between two runs; all other numbers of a scene are small, or beyond any time."""
    return a == b or 5000 <= min(a, b) and max(a, b) <= 10**13 and abs(a - b) <= SLACK_MS


def same(a, b):
    """Numbers may come as text, and '' at the end of an answer may be left out."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        width = max(len(a), len(b))
        return all(same(x, y) for x, y in zip([*a] + [""] * (width - len(a)), [*b] + [""] * (width - len(b))))
    a, b = str(a), str(b)
    return a == b or NUMBER.sub("", a) == NUMBER.sub("", b) and all(map(near, numbers(a), numbers(b)))


def numbers(text):
    return [int(number) for number in NUMBER.findall(text)]


@pytest.fixture
def bench(world):
    return Bench(world.redis())


@pytest.mark.parametrize("name, arguments, plain_ones", [
    ("acquire.lua", acquire, {("granted", 2), ("foreign", 2), ("exhausted", 2)}),
    ("release.lua", release, {("released", 3), ("released", 5)}),
    ("renew.lua", renew, {("renewed", 8)}),
])
def test_the_plain_case_does_what_the_general_one_does(bench, name, arguments, plain_ones):
    dice = random.Random(name)
    bodies = forms(name)
    seen = collections.Counter()
    for _ in range(ROUNDS):
        scene = Scene(dice)
        args = scene.arguments() + arguments(scene)
        whole, general, plain = (bench.run(scene, body, args) for body in bodies)
        assert same(whole, general), f"{vars(scene)}\n{args}\n{whole}\n{general}"
        seen[plain[0][0], len(plain[0])] += 1
    assert seen.keys() == plain_ones | {("general", 1)} and min(seen.values()) > ROUNDS / 75, f"the dice made {seen}"
