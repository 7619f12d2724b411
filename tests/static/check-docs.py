#!/usr/bin/env python3
"""The documents say what the tables in the code say: check-docs.py [--self-test | FOLDER]

    routes, parameters   daemon/router.c, proto/params.h           docs/openapi.yaml, docs/api.md
    their own bodies     daemon/router.c, proto/renewals.c         docs/openapi.yaml, docs/api.md
    errors               proto/errors.h, and who gives them        docs/openapi.yaml, docs/api.md
    options              daemon/options_rows.c                     docs/operations.md, and every sample of a config file
    metrics              daemon/metrics.h, daemon/metrics.c        docs/operations.md
    verbs                daemon/router.c                           docs/security.md
    kinds of events      daemon/lease_event.h                      docs/openapi.yaml, docs/api.md
    log events           daemon/*.c                                docs/operations.md
    rights in Redis      daemon/scripts/*.lua                      the ACL line in docs/operations.md
    scripts              daemon/redis_script.h                     docs/internals.md
    recipes              docs/recipes/*                            docs/clients.md; and tests/recipes/recipes.py has a row for each
    tests, switches      tests/, docs/model/runs                   the failures in docs/guarantees.md, the holes in docs/model/README.md

each in both directions; and every relative link in README.md, CHANGELOG.md and docs/*.md leads somewhere. Without an argument: first the
self-test, in which a copy of the tree is spoilt in one place after the other and each must be found, then the tree. The standard library is
enough: openapi.yaml is written in the part of YAML that the reader below knows, and where PyYAML is there, both must read the same.
"""

import os
import re
import shutil
import sys

sys.dont_write_bytecode = True

import spoiling

# ---------------------------------------------------------------- a little YAML


class Unreadable(Exception):
    pass


def yaml_scalar(text, where):
    if text[:1] in ("'", '"'):
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1] or "\\" in text:
            raise Unreadable(f"{where}: a quoted text of a kind that is not read here: {text}")
        return text[1:-1]
    if re.search(r": | #|^[&*!|>%@`{}\[\]]|:$", text):
        raise Unreadable(f"{where}: this needs quotes: {text}")
    if text in ("true", "false"):
        return text == "true"
    if text in ("null", "~", "yes", "no", "on", "off", ""):
        raise Unreadable(f"{where}: this needs quotes: '{text}'")
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]*", text) else text


class Yaml:
    """Block mappings and sequences, flow sequences of scalars, `>-`, plain and simply quoted scalars; no anchors, no tags."""

    def __init__(self, text, name):
        self.name = name
        self.rows = []  # (line number, indent, text)
        for number, line in enumerate(text.split("\n"), 1):
            stripped = line.strip()
            if stripped and not stripped.startswith("#"):
                self.rows.append((number, len(line) - len(line.lstrip()), stripped))
        self.at = 0

    def where(self):
        row = self.rows[min(self.at, len(self.rows) - 1)]
        return f"{self.name}:{row[0]}"

    def document(self):
        value = self.block(0)
        if self.at < len(self.rows):
            raise Unreadable(f"{self.where()}: an indentation that fits nothing above it")
        return value

    def block(self, indent):
        return self.sequence(indent) if self.rows[self.at][2].startswith("- ") else self.mapping(indent)

    def sequence(self, indent):
        items = []
        while self.at < len(self.rows) and self.rows[self.at][1] == indent and self.rows[self.at][2].startswith("- "):
            number, _, text = self.rows[self.at]
            self.rows[self.at] = (number, indent + 2, text[2:])
            if re.match(r"[^'\"\[]*: |[^'\"\[]*:$", text[2:]):
                items.append(self.mapping(indent + 2))
            else:
                items.append(self.value(text[2:], indent))
        return items

    def mapping(self, indent):
        result = {}
        while self.at < len(self.rows) and self.rows[self.at][1] == indent and not self.rows[self.at][2].startswith("- "):
            match = re.match(r"('[^']*'|[^'\":]+):(?: (.*))?$", self.rows[self.at][2])
            if not match:
                raise Unreadable(f"{self.where()}: not 'key: value'")
            key = match.group(1).strip("'")
            if key in result:
                raise Unreadable(f"{self.where()}: '{key}' stands here twice")
            result[key] = self.value(match.group(2), indent)
        return result

    def value(self, text, indent):
        where = self.where()
        self.at += 1
        if text is None:
            if self.at == len(self.rows) or self.rows[self.at][1] <= indent:
                raise Unreadable(f"{where}: no value")
            return self.block(self.rows[self.at][1])
        if text == ">-":
            return " ".join(self.deeper(indent))
        if text.startswith("["):
            text = " ".join([text] + ([] if text.endswith("]") else self.deeper(indent)))
            if not text.endswith("]") or "'" in text or "[" in text[1:]:
                raise Unreadable(f"{where}: a flow sequence of a kind that is not read here")
            return [yaml_scalar(item.strip(), where) for item in text[1:-1].split(",")] if text != "[]" else []
        return yaml_scalar(text, where)

    def deeper(self, indent):
        texts = []
        while self.at < len(self.rows) and self.rows[self.at][1] > indent:
            texts.append(self.rows[self.at][2])
            self.at += 1
        return texts


def other_reading(text):
    """What PyYAML makes of it; None where it isn't installed."""
    try:
        import yaml
    except ImportError:
        return None
    return yaml.safe_load(text)


# ---------------------------------------------------------------- what the code says


def duration_ms(text):
    match = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)|0", text)
    if not match:
        return None
    return 0 if text == "0" else int(match.group(1)) * {"ms": 1, "s": 1000, "m": 60000, "h": 3600000, "d": 86400000}[match.group(2)]


class Code:
    def __init__(self, read, names):
        self.params = {}  # NAME -> (JSON key, query key)
        for name, in_json, in_query in re.findall(r'^ *X\((\w+), +"(\w+)", +"(\w+)", +\w+, +"', read("proto/params.h"), re.M):
            self.params[name] = (in_json, in_query)
        self.routes = {}  # call -> (method, path, {names of parameters})
        self.needs = {}  # call -> the verb that its caller must have, or "none"
        for call, method, shape, path, params, needs in re.findall(r'\{"(\w+)", HTTP_(\w+), ROUTE_(\w+), "([^"]*)",\s+([^,]+), api_\w+,\s+(\w+)\}',
                                                            read("daemon/router.c")):
            self.needs[call] = "none" if needs == "OPEN_TO_ALL" else needs.removeprefix("ACCESS_").lower()
            full = {"VERB": "/v1/locks/{name}/" + path, "LOCK": "/v1/locks/{name}", "FIXED": path}[shape]
            self.routes[call] = (method, full, set(re.findall(r"PARAM_BIT\((\w+)\)", params)))
        # call -> the fields of a body that its handler reads by itself
        fields = set(re.findall(r'\{"(\w+)", false, read_\w+\}', read("proto/renewals.c")))
        self.bodies = {call: fields for call in re.findall(r'\{"(\w+)", HTTP_POST, ROUTE_FIXED, "[^"]*", OWN_BODY,', read("daemon/router.c"))}
        daemon = {name: read(name) for name in names if re.fullmatch(r"daemon/\w+\.c", name)}
        everything = "\n".join(daemon.values())
        self.errors = {}  # wire string -> (status, is it given)
        for name, status, wire in re.findall(r'^ *X\((\w+), +([0-9]+), +"(\w+)", ', read("proto/errors.h"), re.M):
            given = re.search(rf'\bPAWL_E_{name}\b|\\?"{wire}\\?"', everything)
            self.errors[wire] = (int(status), given is not None)
        self.options = self.read_options(read("daemon/options_rows.c"))
        self.actions = re.findall(r'^ *\{"([a-z-]+)", OPTIONS_\w+, "', read("daemon/options_rows.c"), re.M)
        header = read("daemon/metrics.h")
        self.metrics = dict((name, kind) for kind, name in re.findall(r'^ *X\(\w+, +(counter|gauge), +"(\w+)",', header, re.M))
        self.metrics.update((name, "histogram") for name in re.findall(r'^ *X\(\w+, +"(\w+)", +"', header, re.M))
        self.metrics.update(re.findall(r'render_head\(out, "(\w+)", "(\w+)"', daemon["daemon/metrics.c"]))
        self.kinds = re.findall(r'^ *X\(\w+, +"(\w+)"\)', read("daemon/lease_event.h"), re.M)
        self.events = {}
        for level, first, second in re.findall(r'\blog_(error|warn|info|debug)\((?:[^"();]*\? )?"(\w+)"(?: : "(\w+)")?', everything):
            self.events[first] = level
            if second:
                self.events[second] = level
        for first, second in re.findall(r'\blog_record\((?:[^"();]*\? )?"(\w+)"(?: : "(\w+)")?', everything):
            self.events.update((event, "info") for event in (first, second) if event)
        for event in re.findall(r'\bredis_complain\([^,"]+, "(\w+)"', everything):
            self.events[event] = "warn"
        scripts = "\n".join(read(name) for name in names if name.startswith("daemon/scripts/"))
        self.commands = {command.lower() for command in re.findall(r"redis\.p?call\('(\w+)'", scripts)}
        self.commands |= {"eval", "evalsha", "subscribe", "select", "client|setname", "script|load", "wait"}
        self.scripts = [name.lower() for name in re.findall(r"^ *SCRIPT_(\w+),", read("daemon/redis_script.h"), re.M) if name != "COUNT"]
        self.check(fields)

    @staticmethod
    def read_options(text):
        """key -> (default or None, (min, max) or None, is it a duration)"""
        names = {name: value for name, value in re.findall(r"^#define (\w+_MS) +(.+)$", text, re.M)}

        def number(expression):
            for _ in range(5):
                expression = re.sub(r"\b([A-Z]+_MS)\b", lambda m: names[m.group(1)], expression)
            expression = re.sub(r"INT64_C\((\d+)\)", r"\1", expression)
            product = 1
            for factor in re.sub(r"[() ]", "", expression).split("*"):
                product *= int(factor)
            return product

        options = {}
        for row in re.findall(r"\{\.key = (.*?)\},\n", text, re.S):
            kind = re.search(r"\.kind = OPTION_(\w+)", row).group(1)
            default = re.search(r'\.fallback = "([^"]*)"', row)
            low, high = re.search(r"\.min = ([^,\n]+)", row), re.search(r"\.max = ([^,\n]+)", row)
            bounds = (number(low.group(1)), number(high.group(1))) if high else None
            options[re.match(r'"([a-z-]+)"', row).group(1)] = (default.group(1) if default else None, bounds, kind == "DURATION")
        return options

    def check(self, fields):
        """A table that this script can no longer read must not pass for an empty one."""
        for what, found, least in (("params", self.params, 5), ("routes", self.routes, 5), ("bodies", self.bodies, 1), ("fields", fields, 2), ("errors", self.errors, 10),
                                   ("options", self.options, 10), ("actions", self.actions, 1), ("metrics", self.metrics, 10),
                                   ("events", self.events, 5), ("kinds of events", self.kinds, 5), ("commands", self.commands, 10), ("scripts", self.scripts, 5)):
            if len(found) < least:
                raise Unreadable(f"the table of {what} in the code can't be read any more: {len(found)} rows found")


# ---------------------------------------------------------------- what the documents say


def section(text, heading):
    """From this heading to the next of its level or above; '' when there is none."""
    match = re.search(rf"^(#+) {re.escape(heading)}$", text, re.M)
    if not match:
        return ""
    rest = text[match.end():]
    end = re.search(rf"^#{{1,{len(match.group(1))}}} ", rest, re.M)
    return rest[:end.start()] if end else rest


def table(text, head):
    """The rows of the table whose first line begins with `head`, as lists of cells."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if line.startswith(head):
            rows = []
            for row in lines[i + 2:]:
                if not row.startswith("|"):
                    break
                rows.append([cell.strip() for cell in row.strip("|").split(" | ")])
            return rows
    return []


def code_of(cell):
    return re.findall(r"`([^`]*)`", cell)


class Checker:
    def __init__(self, top, second_reader=True):
        self.top = top
        self.second_reader = second_reader
        self.breaches = []
        names = []
        for folder in ("daemon", "daemon/scripts", "docs", "docs/recipes"):
            names += [f"{folder}/{name}" for name in sorted(os.listdir(os.path.join(top, folder)))]
        self.names = [name for name in names if os.path.isfile(os.path.join(top, name))]

    def read(self, name):
        return spoiling.read(self.top, name)

    def breach(self, text):
        self.breaches.append(text)

    def same(self, where, what, wanted, found):
        for name in sorted(set(wanted) - set(found)):
            self.breach(f"{where}: {what} {name} is missing")
        for name in sorted(set(found) - set(wanted)):
            self.breach(f"{where}: {what} {name} is not in the code")

    def run(self):
        try:
            self.code = Code(self.read, self.names)
            self.openapi()
            self.api()
            self.operations()
            self.internals()
            self.security()
            self.recipes()
            self.tests()
        except Unreadable as problem:
            self.breach(str(problem))
        self.links()
        self.samples()
        return self.breaches

    # ---- openapi.yaml

    def resolve(self, node):
        while isinstance(node, dict) and "$ref" in node:
            at = self.spec
            for step in node["$ref"].removeprefix("#/").split("/"):
                at = at.get(step.replace("~1", "/"), {}) if isinstance(at, dict) else {}
            if not at:
                raise Unreadable(f"docs/openapi.yaml: {node['$ref']} leads nowhere")
            self.used.add(node["$ref"])
            node = at
        return node

    def resolve_all(self, node):
        """Follows every reference once, so that a broken one is found, and notes which are used."""
        if isinstance(node, dict):
            self.resolve(node)
            for value in node.values():
                self.resolve_all(value)
        elif isinstance(node, list):
            for value in node:
                self.resolve_all(value)

    def openapi(self):
        where = "docs/openapi.yaml"
        text = self.read(where)
        self.spec, self.used = Yaml(text, where).document(), set()
        other = other_reading(text) if self.second_reader else None
        if other is not None and other != self.spec:
            self.breach(f"{where}: PyYAML reads something else than this script")
        self.resolve_all(self.spec)
        for kind, parts in self.spec["components"].items():
            for name in parts:
                if kind != "securitySchemes" and f"#/components/{kind}/{name}" not in self.used:
                    self.breach(f"{where}: components/{kind}/{name} is never used")
        self.given = {}  # call -> set of errors beside those of `default`
        found, all_errors = {}, set()
        for path, item in self.spec["paths"].items():
            for method, operation in item.items():
                if method != "parameters":
                    found[operation["operationId"]] = (method.upper(), path)
                    all_errors |= self.operation(where, path, item, operation)
        self.same(where, "call", {(c, r[0], r[1]) for c, r in self.code.routes.items()}, {(c, *f) for c, f in found.items()})
        given = {wire for wire, (_, is_given) in self.code.errors.items() if is_given}
        self.same(where, "error", given, all_errors)
        self.same(f"{where}: the enum of events", "event", self.code.kinds, self.spec["components"]["schemas"]["event_kind"]["enum"])
        self.same(f"{where}: the enum of codes", "error", given, self.spec["components"]["schemas"]["error_code"]["enum"])

    def operation(self, where, path, item, operation):
        call = operation["operationId"]
        parameters = [self.resolve(p) for p in item.get("parameters", []) + operation.get("parameters", [])]
        if ("{name}" in path) != any(p["in"] == "path" for p in parameters):
            self.breach(f"{where}: {call}: the path and its parameter disagree")
        rows = [self.code.params[name] for name in self.code.routes.get(call, ("", "", ()))[2]]
        self.same(f"{where}: {call}", "query parameter", {row[1] for row in rows}, {p["name"] for p in parameters if p["in"] == "query"})
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {}).get("properties", {})
        is_post = self.code.routes.get(call, ("",))[0] == "POST"
        wanted = {row[0] for row in rows} if is_post else set()
        self.same(f"{where}: {call}", "JSON parameter", self.code.bodies.get(call, wanted), body)
        if "200" not in operation["responses"]:
            self.breach(f"{where}: {call}: no 200")
        errors, own = set(), set()
        for status, response in operation["responses"].items():
            codes = self.resolve(response).get("x-errors", [])
            if not codes and status != "200":
                self.breach(f"{where}: {call}: {status} without x-errors")
            for wire in codes:
                if status not in ("default", str(self.code.errors.get(wire, (0,))[0])):
                    self.breach(f"{where}: {call}: {wire} is not a {status}")
            errors |= set(codes)
            own |= set(codes) if status != "default" else set()
        self.given[call] = own
        return errors

    # ---- api.md

    def api(self):
        where = "docs/api.md"
        text = self.read(where)
        rows = table(text, "| call | request |")
        found = {(re.sub(r"^\[(\w+)\]\(#\1\)$", r"\1", row[0]), *(code_of(row[1]) or [""])[0].split(" ", 1)) for row in rows}
        self.same(where, "call", {(c, r[0], r[1]) for c, r in self.code.routes.items()}, found)
        for call, (method, path, params) in self.code.routes.items():
            part = section(text, call)
            if f"\n`{method} {path}`\n" not in part:
                self.breach(f"{where}: {call}: no section that says `{method} {path}`")
            named = {name for row in table(part, "| parameter |") for name in code_of(row[0])}
            self.same(f"{where}: {call}", "parameter", {self.code.params[name][1] for name in params}, named)
            fields = {name for row in table(part, "| field |") for name in code_of(row[0])}
            self.same(f"{where}: {call}", "field", self.code.bodies.get(call, set()), fields)
            line = re.search(r"^Errors: (.*)$", part, re.M)
            self.same(f"{where}: {call}", "error", self.given.get(call, set()), code_of(line.group(1)) if line else [])
        kinds = [code_of(row[0])[0] for row in table(section(text, "events"), "| event |")]
        self.same(where, "event", self.code.kinds, kinds)
        keys = [(re.match(r"\w*", code_of(row[0])[0]).group(0), code_of(row[1])) for row in table(text, "| query | JSON |")]
        self.same(where, "parameter", {row[1] for row in self.code.params.values()}, {key for key, _ in keys})
        for query, in_json in keys:
            if in_json and (in_json[0].split('"')[1], query) not in self.code.params.values():
                self.breach(f"{where}: {query} is not called {in_json[0]} in JSON")
        for head, is_given in (("| error | status |", True), ("| reserved | status |", False)):
            rows = {(code_of(row[0])[0], int(row[1])) for row in table(text, head)}
            self.same(f"{where}: '{head}'", "error", {(w, e[0]) for w, e in self.code.errors.items() if e[1] == is_given}, rows)

    # ---- operations.md

    def operations(self):
        where = "docs/operations.md"
        text = self.read(where)
        rows = table(text, "| flag | variable |")
        self.same(where, "option", self.code.options, [code_of(row[0])[0].removeprefix("--") for row in rows])
        for row in rows:
            self.option(where, code_of(row[0])[0].removeprefix("--"), row)
        self.same(where, "flag", self.code.actions, [code_of(row[0])[0].removeprefix("--") for row in table(text, "| flag | |")])
        rows = table(section(text, "Metrics"), "| metric |")
        self.same(where, "metric", self.code.metrics.items(), [(code_of(row[0])[0], row[1]) for row in rows])
        rows = table(section(text, "Log"), "| event |")
        self.same(where, "log event", self.code.events.items(), [(code_of(row[0])[0], row[1]) for row in rows])
        rights = re.search(r"^ACL SETUSER .*?(?=^```)", text, re.M | re.S)
        self.same(where, "right", self.code.commands, re.findall(r"\+(\S+)", rights.group(0)) if rights else [])

    def option(self, where, key, row):
        default, bounds, is_duration = self.code.options.get(key, (None, None, False))
        if code_of(row[1]) != ["PAWL_" + key.upper().replace("-", "_")]:
            self.breach(f"{where}: --{key}: the variable is not {row[1]}")
        if code_of(row[2]) != ([default] if default is not None else []):
            self.breach(f"{where}: --{key}: the default is not {row[2]}")
        if bounds:
            said = tuple(duration_ms(part) if is_duration else int(part) if part.isdigit() else None for part in row[3].split(" to "))
            if said != bounds:
                self.breach(f"{where}: --{key}: the bounds are not {row[3]}")

    # ---- security.md, internals.md, links, samples

    def security(self):
        rows = table(section(self.read("docs/security.md"), "Verbs"), "| call | verb |")
        self.same("docs/security.md", "verb", self.code.needs.items(), [(row[0], row[1].strip("`")) for row in rows])

    def internals(self):
        rows = table(section(self.read("docs/internals.md"), "In Redis"), "| script |")
        self.same("docs/internals.md", "script", self.code.scripts, [code_of(row[0])[0] for row in rows])

    def recipes(self):
        there = [name.removeprefix("docs/recipes/") for name in self.names if name.startswith("docs/recipes/")]
        text = self.read("docs/clients.md")
        linked = [re.sub(r"^\[([\w.]+)\]\(recipes/\1\)$", r"\1", row[0]) for row in table(text, "| recipe |")]
        self.same("docs/clients.md", "recipe", there, linked)
        for name in there:
            if not re.search(rf"^\w+ docs/recipes/{re.escape(name)} ", re.sub(r"^go run ", "go ", text, flags=re.M), re.M):
                self.breach(f"docs/clients.md: how {name} is run isn't said")
        self.same("tests/recipes/recipes.py", "recipe", there, re.findall(r'^ *Recipe\("\w+", "([^"]+)"', self.read("tests/recipes/recipes.py"), re.M))

    # ---- what is said to be held by a test

    def known_tests(self):
        """Names of the tests, in C and in Python, and of the switches of the models."""
        known = set()
        for folder, _, files in os.walk(os.path.join(self.top, "tests")):
            for name in files:
                path = os.path.relpath(os.path.join(folder, name), self.top)
                if re.fullmatch(r"test_\w+\.c", name):
                    known |= set(re.findall(r"^START_TEST\((\w+)\)", self.read(path), re.M))
                elif re.fullmatch(r"test_\w+\.py", name):
                    known |= set(re.findall(r"^(?:    )?def (test_\w+)\(", self.read(path), re.M))
        if len(known) < 100:
            raise Unreadable(f"the tests can't be found any more: {len(known)} of them")
        return known | set(re.findall(r"^ +(NO_\w+) ", self.read("docs/model/runs"), re.M))

    def tests(self):
        known = self.known_tests()
        tables = (("docs/guarantees.md", "| what fails |", 4, None), ("docs/model/README.md", "| hole |", 2, [f"H{i}" for i in range(1, 18)]))
        for where, head, column, wanted in tables:
            rows = table(self.read(where), head)
            if len(rows) < 10:
                self.breach(f"{where}: the table that begins with '{head}' can't be read")
            if wanted:
                self.same(where, "hole", wanted, [row[0] for row in rows])
            for row in rows:
                names = code_of(row[column]) if len(row) == column + 1 else []
                if not names:
                    self.breach(f"{where}: '{row[0]}' names no test")
                for name in names:
                    if name not in known:
                        self.breach(f"{where}: '{row[0]}': there is no test {name}")

    def pages(self):
        for name in ["README.md", "CHANGELOG.md"] + [name for name in self.names if name.startswith("docs/") and name.endswith(".md")]:
            if os.path.exists(os.path.join(self.top, name)):
                yield name, self.read(name)
            else:
                self.breach(f"{name}: is missing")

    def links(self):
        for name, text in self.pages():
            text = re.sub(r"^```.*?^```|^    .*?$|`[^`\n]*`", "", text, flags=re.M | re.S)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                path, _, anchor = target.partition("#")
                path = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
                if not os.path.isfile(os.path.join(self.top, path)):
                    self.breach(f"{name}: there is no {target}")
                elif anchor and anchor not in self.anchors(path):
                    self.breach(f"{name}: there is no heading for {target}")

    def anchors(self, name):
        headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", self.read(name), flags=re.M | re.S), re.M)
        return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def samples(self):
        """Config files in the text hold only options that exist."""
        known = getattr(self, "code", None) and self.code.options
        for name, text in self.pages():
            for sample in re.findall(r"^```conf\n(.*?)^```", text, re.M | re.S):
                for line in sample.splitlines():
                    key = line.partition("=")[0].strip()
                    if known and line and not line.startswith("#") and key not in known:
                        self.breach(f"{name}: the sample has an option '{key}' that there isn't")


# ---------------------------------------------------------------- can it fail?

# (file, a text in it, what stands there instead, what must then be found)
SPOILT = [
    ("daemon/router.c", '{"healthz", HTTP_GET', '{"health", HTTP_GET', "call ('health', 'GET', '/healthz') is missing"),
    ("daemon/router.c", '"renew", PARAM_BIT(LEASE_ID)', '"renew", PARAM_BIT(OWNER) | PARAM_BIT(LEASE_ID)',
     "query parameter owner is missing"),
    ("daemon/router.c", '"/v1/status", NO_PARAMS, api_status, ', '"/v1/status", NO_PARAMS, x, api_status, ',
     "('status', 'GET', '/v1/status') is not"),
    ("docs/openapi.yaml", "  /healthz:", "  /health:", "call ('healthz', 'GET', '/healthz') is missing"),
    ("docs/openapi.yaml", "      x-errors: [lease_lost]", "      x-errors: [held]", "held is not a 410"),
    ("docs/openapi.yaml", "          x-errors: [not_held]\n", "", "404 without x-errors"),
    ("docs/openapi.yaml", "                wait_ms:\n", "                waits_ms:\n", "JSON parameter wait_ms is missing"),
    ("docs/openapi.yaml", "#/components/responses/lost'", "#/components/responses/gone'", "leads nowhere"),
    ("docs/openapi.yaml", "\n  responses:\n    ok:\n", "\n  responses:\n    okay:\n      description: unused\n    ok:\n",
     "components/responses/okay is never used"),
    ("docs/openapi.yaml", "\n    bad:\n", "\n     bad:\n", "docs/openapi.yaml:"),
    ("docs/openapi.yaml", "  version: '1'\n", "  version: '1'\n  version: '2'\n", "stands here twice"),
    ("docs/openapi.yaml", "enum: [bad_request, ", "enum: [", "the enum of codes: error bad_request is missing"),
    ("proto/errors.h", '410, "lease_lost"', '409, "lease_lost"', "lease_lost is not a 410"),
    ("proto/errors.h", 'X(TIMEOUT,                408, "timeout",', 'X(TOO_SLOW,               408, "too_slow",',
     "error timeout is not in the code"),
    ("daemon/api_access.c", "PAWL_E_UNAUTHORIZED", "PAWL_E_FORBIDDEN", "error unauthorized is not in the code"),
    ("daemon/router.c", "api_break, ACCESS_BREAK", "api_break, ACCESS_ADMIN", "verb ('break', 'admin') is missing"),
    ("docs/api.md", "| `lease_lost` | 410 |", "| `lease_lost` | 409 |", "error ('lease_lost', 410) is missing"),
    ("docs/api.md", "`POST /v1/locks/{name}/break`\n", "", "break: no section that says"),
    ("docs/api.md", "Errors: `bad_request`, `not_held`, ", "Errors: `bad_request`, ", "break: error not_held is missing"),
    ("docs/api.md", "| `reason` | required |", "| `why` | required |", "break: parameter reason is missing"),
    ("docs/api.md", '`"wait_ms": 500`', '`"waits_ms": 500`', "wait is not called"),
    ("docs/api.md", "| `undone` | `name`", "| `taken_back` | `name`", "event undone is missing"),
    ("docs/openapi.yaml", "enum: [grant, release, ", "enum: [grant, ", "the enum of events: event release is missing"),
    ("docs/api.md", "(fencing.md)", "(fences.md)", "there is no fences.md"),
    ("docs/api.md", "(operations.md#metrics)", "(operations.md#numbers)", "there is no heading for operations.md#numbers"),
    ("daemon/options_rows.c", '.fallback = "75s"', '.fallback = "80s"', "--idle-timeout: the default"),
    ("daemon/options_rows.c", ".max = 10 * MINUTE_MS", ".max = 11 * MINUTE_MS", "--recovery-window: the bounds"),
    ("daemon/options_rows.c", '{.key = "dev"', '{.key = "develop"', "option develop is missing"),
    ("docs/operations.md", "| `--max-wait` | `PAWL_MAX_WAIT` ", "| `--max-wait` | `PAWL_MAXWAIT` ", "--max-wait: the variable"),
    ("docs/operations.md", "| `--log-level` ", "| `--log-levels` ", "option log-level is missing"),
    ("docs/operations.md", "| `--version` |", "| `--versions` |", "flag version is missing"),
    ("docs/operations.md", "| `pawl_leases` | gauge |", "| `pawl_leases` | counter |", "metric ('pawl_leases', 'gauge') is missing"),
    ("docs/operations.md", "| `window_closed` |", "| `window_shut` |", "log event ('window_closed', 'info') is missing"),
    ("docs/operations.md", " +zrank", "", "right zrank is missing"),
    ("docs/operations.md", "\nlog-format = json", "\nlog-formats = json", "an option 'log-formats'"),
    ("daemon/metrics.h", '"pawl_hold_seconds"', '"pawl_held_seconds"', "metric ('pawl_held_seconds', 'histogram') is missing"),
    ("daemon/scripts/cancel.lua", "redis.call('PTTL'", "redis.call('STRLEN'", "right strlen is missing"),
    ("daemon/daemon.c", 'log_info("stopped"', 'log_warn("stopped"', "log event ('stopped', 'warn') is missing"),
    ("daemon/redis_script.h", "    SCRIPT_CANCEL,", "    SCRIPT_CANCEL,\n    SCRIPT_FORGET,", "script forget is missing"),
    ("daemon/metrics.h", "X(", "Y(", "can't be read any more"),
    ("docs/clients.md", "| [pawl_lock.rb](recipes/pawl_lock.rb) |", "| pawl.rb |", "docs/clients.md: recipe pawl_lock.rb is missing"),
    ("docs/clients.md", "\nphp docs/recipes/pawl_lock.php ", "\nphp pawl_lock.php ", "how pawl_lock.php is run"),
    ("tests/recipes/recipes.py", 'Recipe("go", "pawl_lock.go"', 'Recipe("go", "lock.go"', "recipe pawl_lock.go is missing"),
    ("README.md", "(docs/api.md)", "(api.md)", "there is no api.md"),
    ("tests/system/test_recovery.py", "def test_p3_twice_in_one_window(", "def test_p3_thrice_in_one_window(", "there is no test test_p3_twice_in_one_window"),
    ("tests/store/test_store_life.c", "START_TEST(P2_C10_tokens_rise_through_flushall)", "START_TEST(P2_C10_tokens)",
     "there is no test P2_C10_tokens_rise_through_flushall"),
    ("docs/guarantees.md", " `test_p3_twice_in_one_window` |", " |", "'that happens again in the window' names no test"),
    ("docs/guarantees.md", "| what fails | holders |", "| failure | holders |", "can't be read"),
    ("docs/model/runs", "    NO_REPLID ", "    NO_REPL ", "there is no test NO_REPLID"),
    ("docs/model/README.md", "| H12 | ", "| H18 | ", "hole H12 is missing"),
]


def not_a_test(folder, names):
    return [name for name in names if not os.path.isdir(os.path.join(folder, name)) and not re.fullmatch(r"test_\w+\.(c|py)", name)]


def lay(top, copy):
    """Without the modes of the files, which may be read-only: some are laid twice, which only root could then."""
    for name in ("daemon", "docs", "proto", "tests/recipes"):
        shutil.copytree(os.path.join(top, name), os.path.join(copy, name), copy_function=shutil.copyfile)
    shutil.copytree(os.path.join(top, "tests"), os.path.join(copy, "tests"), ignore=not_a_test, copy_function=shutil.copyfile, dirs_exist_ok=True)
    spoiling.copy_files(top, copy, ("README.md", "CHANGELOG.md", "LICENSE"))


def self_test(top):
    return spoiling.self_test("check-docs", SPOILT, lambda copy: lay(top, copy), lambda copy: Checker(copy, second_reader=False).run())


def check(top):
    return spoiling.tell("check-docs", Checker(top).run())


if __name__ == "__main__":
    sys.exit(spoiling.main(sys.argv[1:], self_test, check))
