#!/usr/bin/env python3
"""What packages, the image and the manifests say of pawl is so: check-packaging.py [--self-test | FOLDER]

    versions             configure.ac       debian/changelog, the images in packaging/kubernetes
    what a build needs   configure.ac       debian/control
    paths                the unit           debian/pawld.install, debian/pawld.postinst, the image's entry point
    options, variables   the options' rows  packaging/kubernetes
    paths of probes      daemon/router.c    packaging/kubernetes, the image
    user                 the image          packaging/kubernetes

and of the manifests, since no cluster is asked: only known fields; names that one part uses and another defines (labels, volumes, ports, secrets) agree; what the
"restricted" profile of Kubernetes' Pod Security Standards demands is there, with a read-only root, probes, requests and a bound of memory; the time to stop is enough.
Without an argument: first the self-test, in which a copy of the files is spoilt in one place after the other and each must be found, then the tree.
"""

import glob
import importlib.util
import json
import os
import re
import sys

sys.dont_write_bytecode = True

import spoiling

try:
    import yaml
except ImportError:
    print("check-packaging: 1 skipped: PyYAML is missing (Debian: python3-yaml)")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = importlib.util.spec_from_file_location("check_man", os.path.join(HERE, "check-man.py"))
check_man = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_man)

DOCKERFILE = "packaging/container/Dockerfile"
INSTRUCTIONS = "FROM RUN CMD LABEL EXPOSE ENV ADD COPY ENTRYPOINT VOLUME USER WORKDIR ARG ONBUILD STOPSIGNAL HEALTHCHECK SHELL".split()

# The fields that there are, of those objects that stand in the manifests: None is a scalar, a list has items of one kind, ANY is a map of names.
ANY = "any"
KEY = {"name": None, "key": None}
PROBE = {"exec": {"command": [None]}, "httpGet": {"path": None, "port": None, "scheme": None}, "periodSeconds": None, "timeoutSeconds": None,
         "failureThreshold": None, "initialDelaySeconds": None}
RESOURCES = {"requests": {"cpu": None, "memory": None}, "limits": {"cpu": None, "memory": None}}
CONTAINER = {
    "name": None, "image": None, "restartPolicy": None, "args": [None], "command": [None],
    "env": [{"name": None, "value": None, "valueFrom": {"secretKeyRef": KEY, "fieldRef": {"fieldPath": None}}}],
    "ports": [{"name": None, "containerPort": None}], "lifecycle": {"preStop": {"exec": {"command": [None]}}},
    "startupProbe": PROBE, "livenessProbe": PROBE, "readinessProbe": PROBE, "resources": RESOURCES,
    "securityContext": {"runAsUser": None, "runAsGroup": None, "allowPrivilegeEscalation": None, "readOnlyRootFilesystem": None,
                        "capabilities": {"drop": [None]}},
    "volumeMounts": [{"name": None, "mountPath": None, "readOnly": None}],
}
SELECTOR = {"matchLabels": ANY}
POD = {
    "enableServiceLinks": None, "automountServiceAccountToken": None, "terminationGracePeriodSeconds": None,
    "securityContext": {"runAsNonRoot": None, "runAsUser": None, "runAsGroup": None, "fsGroup": None, "seccompProfile": {"type": None}},
    "topologySpreadConstraints": [{"maxSkew": None, "topologyKey": None, "whenUnsatisfiable": None, "labelSelector": SELECTOR}],
    "initContainers": [CONTAINER], "containers": [CONTAINER],
    "volumes": [{"name": None, "emptyDir": {"medium": None, "sizeLimit": None},
                 "secret": {"secretName": None, "defaultMode": None, "items": [{"key": None, "path": None}]}}],
}
META = {"name": None, "labels": ANY}
OBJECTS = {
    ("v1", "Secret"): {"stringData": ANY},
    ("v1", "Service"): {"spec": {"selector": ANY, "ports": [{"name": None, "port": None, "targetPort": None}]}},
    ("apps/v1", "Deployment"): {"spec": {"replicas": None, "selector": SELECTOR, "template": {"metadata": META, "spec": POD}}},
    ("policy/v1", "PodDisruptionBudget"): {"spec": {"maxUnavailable": None, "selector": SELECTOR}},
}


class UniqueLoader(yaml.SafeLoader):
    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"'{key}' stands here twice", node.start_mark)
        return super().construct_mapping(node, deep)


def unknown(value, shape, where):
    if shape == ANY:
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            yield f"{where}: is not a map of texts"
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{where}: is not a map"
            return
        for key, part in value.items():
            if key in shape:
                yield from unknown(part, shape[key], f"{where}.{key}")
            else:
                yield f"{where}: there is no field '{key}'"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{where}: is not a list"
            return
        for part in value:
            yield from unknown(part, shape[0], where + "[]")
    elif isinstance(value, (dict, list)) or value is None:
        yield f"{where}: is no single value"


def seconds(text):
    ms = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    return int(ms.group(1)) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}[ms.group(2)]


class Checker:
    def __init__(self, top):
        self.top, self.found = top, []
        self.rows = {row["key"]: row for row in check_man.rows(top)[0]}
        self.version = re.search(r"^AC_INIT\(\[pawl\], \[([^\]]+)\]\)", self.read("configure.ac"), re.M).group(1)
        self.routes = set(re.findall(r'ROUTE_FIXED, "([^"]+)"', self.read("daemon/router.c")))
        self.uid = None

    def read(self, name):
        return spoiling.read(self.top, name)

    def want(self, true, breach):
        if not true:
            self.found.append(breach)

    def run(self):
        for part in (self.debian, self.image, self.manifests):
            try:
                part()
            except (OSError, yaml.YAMLError, AttributeError, KeyError, IndexError, TypeError, ValueError) as e:
                self.found.append(f"{part.__name__}: {e!r}")
        return self.found

    def debian(self):
        first = re.match(r"pawl \(([^)]+)\) ", self.read("debian/changelog"))
        self.want(first and first.group(1) == self.version, f"debian/changelog: does not begin with version {self.version}")
        control = self.read("debian/control")
        for package in re.findall(r"^PAWL_NEED\(.*\[([a-z0-9.+-]+)\]\)$", self.read("configure.ac"), re.M) + ["uthash-dev"]:
            self.want(re.search(rf"^ {re.escape(package)},$", control, re.M), f"debian/control: does not build-depend on {package}")
        unit = self.read("daemon/units/pawld.service.in")
        start = re.search(r"^ExecStart=@sbindir@/pawld --config @sysconfdir@/(\S+)$", unit, re.M).group(1)
        self.want(f"packaging/pawl.conf etc/{os.path.dirname(start)}\n" in self.read("debian/pawld.install") and start.endswith("/pawl.conf"),
                  f"debian/pawld.install: does not install the file of the unit, {start}")
        self.want(f"/etc/{start};" in self.read("debian/pawld.postinst"), f"debian/pawld.postinst: does not keep /etc/{start} from others")
        logs = re.search(r"^LogsDirectory=(\S+)$", unit, re.M).group(1)
        for name in ("debian/pawld.postrm", "debian/pawld.logrotate", "packaging/pawl.conf"):
            self.want(f"/var/log/{logs}" in self.read(name), f"{name}: does not name /var/log/{logs}")

    def image(self):
        text = self.read(DOCKERFILE)
        lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.M)).strip().splitlines()
        steps = [line.split(None, 1) for line in lines if line.strip()]
        for step in steps:
            self.want(step[0] in INSTRUCTIONS and len(step) == 2, f"{DOCKERFILE}: what is {step[0]}?")
        last = max(i for i, step in enumerate(steps) if step[0] == "FROM")
        final = steps[last:]

        def one(name):
            return [step[1] for step in final if step[0] == name][-1]

        self.want(len([step for step in steps if step[0] == "FROM"]) == 2, f"{DOCKERFILE}: has not two stages")
        user = re.fullmatch(r"(\d+):\1", one("USER"))
        self.want(user and int(user.group(1)) > 0, f"{DOCKERFILE}: the user is no number, or root")
        self.uid = int(user.group(1))
        self.want(text.count(f"--gid {self.uid}") == 2 and f"--uid {self.uid}" in text, f"{DOCKERFILE}: makes another user than {self.uid}")
        self.want(json.loads(one("ENTRYPOINT")) == ["/usr/sbin/pawld"], f"{DOCKERFILE}: does not start pawld")
        self.want("$HEALTH_AT" in one("HEALTHCHECK"), f"{DOCKERFILE}: the health check does not ask at HEALTH_AT")
        asked = re.search(r'^HEALTH_AT="http://([^/"]+)(/[^"]*)"$', one("ENV"))
        self.want(asked and asked.group(2) in self.routes and asked.group(1) == self.rows["listen"]["fallback"],
                  f"{DOCKERFILE}: HEALTH_AT is no path of pawld at the address where it listens by default")
        for package in re.findall(r"/packages/([a-z0-9-]+)_\*\.deb", text):
            self.want(f"\nPackage: {package}\n" in self.read("debian/control"), f"{DOCKERFILE}: there is no package {package}")

    # ---- manifests

    def manifests(self):
        names = sorted(glob.glob(os.path.join(self.top, "packaging/kubernetes/*.yaml")))
        self.want(len(names) >= 2, "packaging/kubernetes: manifests are missing")
        for path in names:
            name = os.path.relpath(path, self.top)
            objects = list(yaml.load_all(self.read(name), UniqueLoader))
            for thing in objects:
                kind = (thing["apiVersion"], thing["kind"])
                self.want(kind in OBJECTS, f"{name}: what is {kind}?")
                shape = {"apiVersion": None, "kind": None, "metadata": META, **OBJECTS.get(kind, {})}
                self.found += [f"{name}: {breach}" for breach in unknown(thing, shape, thing["kind"])]
            self.names_agree(name, objects)
            for thing in objects:
                if thing["kind"] == "Deployment":
                    self.pod(name, thing["spec"]["template"]["spec"], objects)

    def names_agree(self, name, objects):
        deployment = next(thing for thing in objects if thing["kind"] == "Deployment")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        ports = [port["name"] for c in deployment["spec"]["template"]["spec"]["containers"] for port in c.get("ports", [])]
        for thing in objects:
            spec = thing.get("spec", {})
            selector = spec.get("selector", {})
            if selector:
                chosen = selector.get("matchLabels", selector)
                self.want(chosen.items() <= labels.items(), f"{name}: {thing['kind']} selects other pods")
            if thing["kind"] == "Service":
                self.want(thing["metadata"]["name"] != "pawl", f"{name}: a Service called pawl sets variables of pawld's prefix")
                for port in spec["ports"]:
                    self.want(port["targetPort"] in ports, f"{name}: no container has a port {port['targetPort']}")

    def pod(self, name, spec, objects):
        secrets = {thing["metadata"]["name"]: thing["stringData"] for thing in objects if thing["kind"] == "Secret"}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        context = spec["securityContext"]
        self.want(context.get("runAsNonRoot") is True and context.get("seccompProfile", {}).get("type") == "RuntimeDefault",
                  f"{name}: the pod is not restricted")
        self.want(spec.get("enableServiceLinks") is False, f"{name}: enableServiceLinks is not false")
        for volume in volumes.values():
            if "secret" in volume:
                keys = secrets.get(volume["secret"]["secretName"], {})
                self.want(all(item["key"] in keys for item in volume["secret"]["items"]), f"{name}: a volume of a secret that isn't there")
        pawlds = 0
        for c in spec.get("initContainers", []) + spec["containers"]:
            self.container(name, c, volumes, secrets)
            if c["image"].startswith("pawl:"):
                pawlds += 1
                self.pawld(name, c, spec)
        self.want(pawlds == 1, f"{name}: {pawlds} containers of pawld")

    def container(self, name, c, volumes, secrets):
        where, context = f"{name}: {c['name']}", c["securityContext"]
        self.want(context.get("allowPrivilegeEscalation") is False and context.get("capabilities", {}).get("drop") == ["ALL"]
                  and context.get("readOnlyRootFilesystem") is True and context.get("runAsUser", 1) != 0, f"{where}: is not restricted")
        resources = c["resources"]
        self.want({"cpu", "memory"} <= set(resources["requests"]) and "memory" in resources["limits"], f"{where}: no requests, or no bound of memory")
        for mount in c.get("volumeMounts", []):
            self.want(mount["name"] in volumes, f"{where}: there is no volume {mount['name']}")
        for variable in c.get("env", []):
            key = variable.get("valueFrom", {}).get("secretKeyRef")
            self.want(not key or key["key"] in secrets.get(key["name"], {}), f"{where}: {variable['name']} is of a secret that isn't there")

    def pawld(self, name, c, spec):
        where = f"{name}: {c['name']}"
        self.want(c["image"] == f"pawl:{self.version}", f"{where}: the image is not of version {self.version}")
        user = c["securityContext"].get("runAsUser", spec["securityContext"].get("runAsUser"))
        self.want(user == self.uid and spec["securityContext"]["fsGroup"] == self.uid, f"{where}: is not run by the image's user, {self.uid}")
        options = {}
        args = list(c["args"])
        while args:
            flag, equals, value = args.pop(0).partition("=")
            self.want(flag.startswith("--") and flag[2:] in self.rows, f"{where}: pawld has no option {flag}")
            row = self.rows.get(flag[2:], {"kind": "BOOL"})
            options[flag[2:]] = value if equals else "true" if row["kind"] == "BOOL" else args.pop(0)
        variables = {check_man.variable(key): key for key in self.rows}
        for variable in c["env"]:
            self.want(variable["name"] in variables, f"{where}: pawld has no variable {variable['name']}")
            options[variables.get(variable["name"], "")] = variable.get("value")
        self.want("redis" in options, f"{where}: says nothing of Redis")
        self.probes(where, c, options["listen"])
        if "auth-file" in options:
            mount = next(mount for mount in c["volumeMounts"] if options["auth-file"].startswith(mount["mountPath"] + "/"))
            paths = [item["path"] for volume in spec["volumes"] if volume["name"] == mount["name"] for item in volume["secret"]["items"]]
            self.want(options["auth-file"][len(mount["mountPath"]) + 1:] in paths, f"{where}: the file of --auth-file is in no volume")
        else:
            self.want(options["listen"].startswith("unix:"), f"{where}: listens to others without rules")
        drain = seconds(options.get("drain-timeout") or self.rows["drain-timeout"]["fallback"])
        pause = c.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        self.want(spec["terminationGracePeriodSeconds"] >= drain + float(pause[1]) + 5, f"{where}: is killed before it has drained")

    def probes(self, where, c, listen):
        for kind, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/healthz")):
            probe = c.get(kind)
            if kind == "startupProbe" and not probe:
                continue
            self.want(probe and path in self.routes, f"{where}: no {kind}")
            if "httpGet" in probe:
                ports = {port["name"]: port["containerPort"] for port in c["ports"]}
                self.want(probe["httpGet"]["path"] == path and str(ports.get(probe["httpGet"]["port"])) == listen.rpartition(":")[2],
                          f"{where}: {kind} does not ask pawld for {path}")
            else:
                command = probe["exec"]["command"]
                socket = listen.removeprefix("unix:").partition("?")[0]
                self.want(command[0] == "curl" and command[command.index("--unix-socket") + 1] == socket and command[-1] == "http://localhost" + path
                          and any(socket.startswith(mount["mountPath"] + "/") for mount in c["volumeMounts"]),
                          f"{where}: {kind} does not ask pawld for {path}")
                self.want(float(command[command.index("-m") + 1]) < probe["timeoutSeconds"], f"{where}: {kind} waits longer than it is waited for")


# ---------------------------------------------------------------- can it fail?

SIDECAR, SERVICE = "packaging/kubernetes/sidecar.yaml", "packaging/kubernetes/service.yaml"
FILES = ("configure.ac", "debian/changelog", "debian/control", "debian/pawld.install", "debian/pawld.postinst", "debian/pawld.postrm", "debian/pawld.logrotate",
         "daemon/units/pawld.service.in", "daemon/options_rows.c", "daemon/options_rows.h", "daemon/options.h", "daemon/router.c", "packaging/pawl.conf",
         DOCKERFILE, SIDECAR, SERVICE)
SPOILT = [
    ("configure.ac", "AC_INIT([pawl], [", "AC_INIT([pawl], [9.", "does not begin with version"),
    ("configure.ac", "[libjansson-dev]", "[libjson-dev]", "build-depend on libjson-dev"),
    ("daemon/units/pawld.service.in", "@sysconfdir@/pawl/pawl.conf", "@sysconfdir@/pawl.conf", "does not install the file of the unit"),
    ("daemon/units/pawld.service.in", "LogsDirectory=pawl", "LogsDirectory=pawld", "does not name /var/log/pawld"),
    ("debian/pawld.postinst", "/etc/pawl/pawl.conf;", "/etc/pawl.conf;", "from others"),
    ("daemon/router.c", '"/readyz"', '"/ready"', "no readinessProbe"),
    ("daemon/options_rows.c", '.key = "log-format"', '.key = "log-form"', "no option --log-format"),
    (DOCKERFILE, "USER 7295:7295", "USER pawl", "the user is no number"),
    (DOCKERFILE, "USER 7295:7295", "USER 7296:7296", "makes another user"),
    (DOCKERFILE, "EXPOSE", "EXPOS", "what is EXPOS?"),
    (DOCKERFILE, "/usr/sbin/pawld", "/usr/bin/pawld", "does not start pawld"),
    (DOCKERFILE, "7295/healthz", "7296/healthz", "HEALTH_AT is no path"),
    (DOCKERFILE, "/packages/pawld_", "/packages/pawl-daemon_", "no package pawl-daemon"),
    (SIDECAR, "mode=0660", "mode=0660&mode=0660\n            - --listens=x", "no option --listens"),
    (SIDECAR, "name: PAWL_LOG_FORMAT", "name: PAWL_LOG_FORMS", "no variable PAWL_LOG_FORMS"),
    (SIDECAR, "readOnlyRootFilesystem", "readOnlyRootFileSystem", "no field 'readOnlyRootFileSystem'"),
    (SIDECAR, "drop: [ALL]", "drop: []", "is not restricted"),
    (SIDECAR, "runAsNonRoot: true", "runAsNonRoot: false", "the pod is not restricted"),
    (SIDECAR, "runAsUser: 7295", "runAsUser: 1000", "the image's user"),
    (SIDECAR, "--unix-socket, /run/pawl/pawl.sock", "--unix-socket, /run/pawl.sock", "livenessProbe does not ask"),
    (SIDECAR, "secretKeyRef:\n                  name: pawl-redis", "secretKeyRef:\n                  name: redis", "of a secret that isn't there"),
    (SIDECAR, "- name: pawl\n          emptyDir", "- name: paws\n          emptyDir", "there is no volume pawl"),
    (SIDECAR, "              memory: 128Mi", "              cpu: 1", "no bound of memory"),
    (SIDECAR, "enableServiceLinks: false", "enableServiceLinks: true", "enableServiceLinks is not false"),
    (SIDECAR, "replicas: 2", "replicas: 2\n  replicas: 3", "stands here twice"),
    (SIDECAR, "image: pawl:0", "image: pawl:9", "the image is not of version"),
    (SERVICE, "--listen=0.0.0.0:7295", "--listen=0.0.0.0:7296", "livenessProbe does not ask"),
    (SERVICE, "            - --auth-file=/etc/pawl-secret/auth.json\n", "", "listens to others without rules"),
    (SERVICE, "auth-file=/etc/pawl-secret/auth.json", "auth-file=/etc/pawl-secret/rules.json", "is in no volume"),
    (SERVICE, "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 15", "killed before it has drained"),
    (SERVICE, "targetPort: http", "targetPort: https", "has a port https"),
    (SERVICE, "kind: Service\nmetadata:\n  name: pawld", "kind: Service\nmetadata:\n  name: pawl", "a Service called pawl"),
    (SERVICE, "  selector:\n    app.kubernetes.io/name: pawld", "  selector:\n    app.kubernetes.io/name: pawl", "selects other pods"),
]


def self_test(top):
    return spoiling.self_test("check-packaging", SPOILT, lambda copy: spoiling.copy_files(top, copy, FILES), lambda copy: Checker(copy).run())


def check(top):
    return spoiling.tell("check-packaging", Checker(top).run())


if __name__ == "__main__":
    sys.exit(spoiling.main(sys.argv[1:], self_test, check))
