"""What the checks in Python share: a self-test that shows that they can fail, how they tell what they found, and how they are called.

A check is a function that is given a tree and gives the sentences of what is wrong in it. Its self-test lays a copy of the tree, spoils it in one place after
the other (rows of: file, a text in it, what stands there instead, what must then be found) and mends it again. What is found in the sound copy already doesn't
count as found.
"""

import os
import shutil
import tempfile


def read(top, name):
    with open(os.path.join(top, name), encoding="utf-8") as file:
        return file.read()


def write(top, name, text):
    with open(os.path.join(top, name), "w", encoding="utf-8") as file:
        file.write(text)


def copy_files(top, copy, names):
    """They may be read-only where they come from; their copies are not."""
    for name in names:
        os.makedirs(os.path.dirname(os.path.join(copy, name)), exist_ok=True)
        shutil.copyfile(os.path.join(top, name), os.path.join(copy, name))


def self_test(check, rows, lay, find):
    """lay(folder) makes a copy there, find(folder) checks it."""
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "tree")
        lay(copy)
        sound = list(find(copy))
        for name, old, new, wanted in rows:
            text = read(copy, name)
            os.chmod(os.path.join(copy, name), 0o644)
            write(copy, name, text.replace(old, new))
            found = [breach for breach in find(copy) if breach not in sound]
            write(copy, name, text)
            if old in text and any(wanted in breach for breach in found):
                passed += 1
            else:
                failed += 1
                print(f"self-test: {name}: {old!r} to {new!r}: wanted '{wanted}', found {found}" if old in text
                      else f"self-test: {name} does not hold {old!r} any more")
    print(f"{check} self-test: {passed} passed, {failed} failed")
    return failed == 0


def tell(check, breaches, count=1, skipped=0):
    """One line for each breach, and one with the sum; `count` is what has passed when there is none. True: there is none."""
    for breach in breaches:
        print(breach)
    print(f"{check}: {0 if breaches else count} passed, {len(breaches)} failed{f', {skipped} skipped' if skipped else ''}")
    return not breaches


def top_folder():
    return os.environ.get("TOP_SRCDIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def main(arguments, test_itself, check_tree):
    """check-NAME.py [--self-test | FOLDER]; without an argument both, the tree being top_folder(). Returns the exit status."""
    top = top_folder()
    if arguments == ["--self-test"]:
        good = test_itself(top)
    elif arguments:
        good = check_tree(arguments[0])
    else:
        good = test_itself(top) & check_tree(top)
    return 0 if good else 1
