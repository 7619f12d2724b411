"""A file of access rules, and tokens to go with it.

    auth = AuthFile(world.folder())
    ci = auth.rule("ci", ["ci/"], ["acquire", "read"])      the token of a new rule; write() puts all rules into the file
    auth.write()
    pawld = world.pawld(redis, auth.args, wait="listening")
"""

import hashlib
import json
import os
import secrets


def new_token():
    return secrets.token_urlsafe(32)


def sha256(token):
    return hashlib.sha256(token.encode()).hexdigest()


class AuthFile:
    def __init__(self, folder):
        self.path = os.path.join(folder, "auth.json")
        self.rules = []

    @property
    def args(self):
        return ["--auth-file", self.path]

    def rule(self, name, prefixes, verbs, token=None, **more):
        token = token or new_token()
        self.rules.append({"name": name, "token_sha256": sha256(token), "prefixes": prefixes, "verbs": verbs, **more})
        return token

    def remove(self, name):
        self.rules = [rule for rule in self.rules if rule["name"] != name]

    def write(self):
        return self.write_text(json.dumps({"rules": self.rules}, indent=4))

    def write_text(self, text, mode=0o600):
        """In one step, so that nobody reads a half of it."""
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(self.path + ".new", mode)
        os.rename(self.path + ".new", self.path)
        return self
