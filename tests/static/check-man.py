#!/usr/bin/env python3
"""The manual pages say what the rows of the options say: check-man.py [--self-test | --write | FOLDER]

The list of options in docs/man/pawld.8 and docs/man/pawl.conf.5 stands between two comments and is made from daemon/options_rows.c: --write makes it anew, the
check wants it to be as it would be made. packaging/pawl.conf, which packages install as /etc/pawl/pawl.conf, shows options with their defaults; those must be
the rows'. Where mandoc and groff are installed, they must have nothing to say about any page. Without an argument: first the self-test, in which a copy of
the files is spoilt in one place after the other and each must be found, then the tree.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True

import spoiling

ROWS = "daemon/options_rows.c"
PAGES = ("docs/man/pawld.8", "docs/man/pawl.conf.5")
SAMPLE = "packaging/pawl.conf"
BEGIN = ".\\\" Made from daemon/options_rows.c by tests/static/check-man.sh --write; change it there."
END = ".\\\" End of what is made."


class Unreadable(Exception):
    pass


# ---------------------------------------------------------------- rows


def constants(text):
    values = {"OPTIONS_LISTEN_MAX": None, "OPTIONS_ORIGINS_MAX": None}
    for name, value in re.findall(r"^#define (\w+) +([^/\n]+?) *(?:/\*.*)?$", text, re.M):
        value = re.sub(r"INT64_C\((\d+)\)", r"\1", value).strip("() ")
        factors = [values.get(part, part) for part in re.split(r" *\* *", value)]
        if all(str(part).isdigit() for part in factors):
            product = 1
            for part in factors:
                product *= int(part)
            values[name] = product
    return values


def rows(top):
    text = spoiling.read(top, ROWS)
    known = constants(spoiling.read(top, "daemon/options.h") + text)

    def number(expression):
        product = 1
        for part in re.split(r" *\* *", expression.strip()):
            product *= int(part) if part.isdigit() else known[part]
        return product

    found = []
    for body in re.findall(r"\{\.key = (.*?)\},\n", text, re.S):
        row = {"key": re.match(r'"([a-z-]+)"', body).group(1), "kind": re.search(r"\.kind = OPTION_(\w+)", body).group(1)}
        for field in ("fallback", "what"):
            value = re.search(rf'\.{field} = "([^"]*)"', body)
            row[field] = value.group(1) if value else None
        for field in ("min", "max", "list_max"):
            value = re.search(rf"\.{field} = ([^,\n]+)", body)
            row[field] = number(value.group(1)) if value else None
        parts = re.search(r'\.help = ((?:"(?:[^"\\]|\\.)*"\s*)+)', body)
        row["help"] = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', parts.group(1))).replace('\\"', '"')
        row["secret"], row["not_in_file"] = ".secret = true" in body, ".not_in_file = true" in body
        found.append(row)
    actions = re.findall(r'^ *\{"([a-z-]+)", OPTIONS_\w+, "([^"]*)"\}', text, re.M)
    count = re.search(r"#define OPTION_ROW_COUNT (\d+)", spoiling.read(top, "daemon/options_rows.h"))
    if len(found) != int(count.group(1)) or not actions:
        raise Unreadable(f"{ROWS}: the rows can't be read any more: {len(found)} found, {count.group(1)} are there")
    return found, actions


# ---------------------------------------------------------------- pages


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace('"', "\\(dq")
    return "\\&" + text if text.startswith(".") else text


def sentence(text):
    first = re.match(r"[a-z]+\b(?![:/=_.-])", text)
    text = text[0].upper() + text[1:] if first else text
    return text if text.endswith(".") else text + "."


def duration(ms):
    for unit, size in (("d", 86400000), ("h", 3600000), ("m", 60000), ("s", 1000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms" if ms else "0"


def variable(key):
    return "PAWL_" + key.upper().replace("-", "_")


def value_name(row):
    if row["kind"] == "BOOL":
        return "true|false"
    return row["what"]


def facts(row, of_file):
    said = []
    if row["list_max"]:
        said.append(f"May be repeated, up to {row['list_max']} times" + ("" if of_file else "; in the environment commas part the values") + ".")
    if row["max"] is not None:
        show = duration if row["kind"] == "DURATION" else str
        said.append(f"From {show(row['min'])} to {show(row['max'])}.")
    if row["fallback"] is not None:
        said.append(f"Default: {row['fallback']}.")
    if row["secret"]:
        said.append("A password in it is masked wherever options are shown.")
    return said


def entry(head, texts):
    lines = [".TP", head]
    for text in texts:
        lines.append(roff(text))
    return lines


def block(page, found, actions):
    lines = [BEGIN]
    of_file = page.endswith(".conf.5")
    for row in found:
        if of_file and row["not_in_file"]:
            continue
        key = roff(row["key"])
        if of_file:
            head = f'.BI "{key} = " {roff(value_name(row))}' if "|" not in value_name(row) else f'.B "{key} = {roff(value_name(row))}"'
        elif row["kind"] == "BOOL":
            head = f".B \\-\\-{key}"
        else:
            head = f'.BI "\\-\\-{key} " {roff(row["what"])}' if "|" not in row["what"] else f'.B "\\-\\-{key} {roff(row["what"])}"'
        said = [sentence(row["help"])] + [text for text in facts(row, of_file) if of_file or not text.startswith("From ")]
        if not of_file:
            said.append(f"Variable: {variable(row['key'])}.")
        lines += entry(head, said)
    if not of_file:
        for key, text in actions:
            lines += entry(f".B \\-\\-{roff(key)}", [sentence(text)])
    return "\n".join([*lines, END, ""])


def made(page, text, top):
    found, actions = rows(top)
    new = block(page, found, actions)
    if BEGIN in text and END in text:
        start = text.index(BEGIN)
        return text[:start] + new + text[text.index(END) + len(END) + 1:]
    where = ".SH SIGNALS" if page.endswith(".8") else ".SH EXAMPLE"
    return text.replace(where + "\n", new + where + "\n")


def write(top):
    for page in PAGES:
        text = made(page, spoiling.read(top, page), top)
        with open(os.path.join(top, page), "w", encoding="utf-8") as file:
            file.write(text)


def lint(top):
    """mandoc's and groff's findings. Pages have no date: nothing would keep it true."""
    for page in sorted(glob.glob(os.path.join(top, "docs/man/*.[1-8]"))):
        for command in (["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-ww", "-z"]):
            if shutil.which(command[0]):
                done = subprocess.run([*command, page], capture_output=True, text=True, check=False)
                for line in (done.stdout + done.stderr).splitlines():
                    if "missing date" not in line:
                        yield f"{os.path.relpath(page, top)}: {command[0]}: {line.split(':', 2)[-1].strip()}"


def sample(top):
    if not os.path.isfile(os.path.join(top, SAMPLE)):
        yield f"{SAMPLE}: is missing"
        return
    found = {row["key"]: row for row in rows(top)[0]}
    for number, line in enumerate(spoiling.read(top, SAMPLE).splitlines(), 1):
        match = re.fullmatch(r"(#?)([a-z-]+) = (.+)", line)
        if not match and line and not line.startswith("# "):
            yield f"{SAMPLE}:{number}: neither a comment, nor an option, nor one that is commented out"
        if match and match.group(2) not in found:
            yield f"{SAMPLE}:{number}: there is no option {match.group(2)}"
        elif match and found[match.group(2)]["not_in_file"]:
            yield f"{SAMPLE}:{number}: {match.group(2)} can't stand in a file"
        elif match and found[match.group(2)]["fallback"] not in (None, match.group(3)):
            yield f"{SAMPLE}:{number}: the default of {match.group(2)} is {found[match.group(2)]['fallback']}"


def breaches(top):
    try:
        for page in PAGES:
            text = spoiling.read(top, page)
            if BEGIN not in text or END not in text or made(page, text, top) != text:
                wanted = set(made(page, text, top).splitlines())
                have = set(text.splitlines())
                odd = sorted(wanted - have)[:3] + sorted(have - wanted)[:3]
                yield f"{page}: its options are not those of {ROWS} ({' / '.join(odd) or 'their order'}): tests/static/check-man.sh --write"
        yield from sample(top)
        yield from lint(top)
    except (Unreadable, OSError, AttributeError, KeyError, TypeError, ValueError) as e:
        yield f"{ROWS}: {e!r}"


# ---------------------------------------------------------------- can it fail?

SPOILT = [
    (ROWS, '.fallback = "75s"', '.fallback = "80s"', "docs/man/pawld.8: its options"),
    (ROWS, '.fallback = "75s"', '.fallback = "80s"', "docs/man/pawl.conf.5: its options"),
    (ROWS, ".max = 10 * MINUTE_MS", ".max = 11 * MINUTE_MS", "docs/man/pawl.conf.5: its options"),
    (ROWS, '.key = "drain-timeout"', '.key = "drain-time"', "docs/man/pawld.8: its options"),
    (ROWS, '"client connections open at once"', '"connections"', "docs/man/pawld.8: its options"),
    (ROWS, '"print the version and exit"', '"print it"', "docs/man/pawld.8: its options"),
    (ROWS, "{.key =", "{ .key =", "can't be read any more"),
    (ROWS, '.fallback = "redis://127.0.0.1:6379/0"', '.fallback = "redis://127.0.0.1:6380/0"', SAMPLE),
    ("docs/man/pawld.8", "\\-\\-max\\-wait", "\\-\\-max\\-waits", "docs/man/pawld.8: its options"),
    ("docs/man/pawld.8", END, "", "docs/man/pawld.8: its options"),
    (SAMPLE, "#log-level = info", "#log-levels = info", "no option log-levels"),
    (SAMPLE, "#log-level = info", "#config = /x", "can't stand in a file"),
    (SAMPLE, "#log-level = info", "log-level is info", "neither a comment"),
]
SPOILT_LINT = [("docs/man/pawld.8", ".SH SIGNALS", ".SHH SIGNALS", "docs/man/pawld.8: mandoc:")]


def self_test(top):
    parts = (ROWS, "daemon/options.h", "daemon/options_rows.h", SAMPLE, *PAGES)
    rows = SPOILT + (SPOILT_LINT if shutil.which("mandoc") else [])
    return spoiling.self_test("check-man", rows, lambda copy: spoiling.copy_files(top, copy, parts), breaches)


def check(top):
    found = list(breaches(top))
    if not shutil.which("mandoc"):
        print("check-man: mandoc is missing (Debian: mandoc), so the pages were compared and not linted")
    return spoiling.tell("check-man", found)


def main(arguments):
    if arguments == ["--write"]:
        write(spoiling.top_folder())
        return 0
    return spoiling.main(arguments, self_test, check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
