"""Replaces itself by weir, started as a set of deployment files starts it: as their user, with their mounts, variables and
command. As in the image, the root is read-only and has the C library, the certificate authorities and the program.

Usage: unshare --mount start.py SET DEPLOY PROGRAM DATA

SET is compose, kubernetes, systemd, helm, or the name of a cloud, whose values Helm gets. The folder DEPLOY has the files and
the secrets that make-secrets.sh made. DATA is the beginning of weir's data folder, so that weir need not compile its plugins.
Variables WEIR_… go to weir."""

import configparser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import yaml

import objects

SET, DEPLOY, PROGRAM, DATA = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
ROOT = pathlib.Path("/mnt")


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def inside(path):
    return ROOT / str(path).lstrip("/")


def bind(source, target, read_only=True):
    """Mounts a file or a folder with its own owner and mode, as a bind mount does."""
    target = inside(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(exist_ok=True) if source.is_dir() else target.touch()
    mount("--rbind", source, target)
    if read_only:
        mount("-o", "remount,bind,ro", target)


def tmpfs(target, uid, gid, mode, flags=""):
    target = inside(target)
    target.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", f"{flags}uid={uid},gid={gid},mode={mode}", "tmpfs", target)
    return target


def own(folder, uid, gid):
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, uid, gid)


def make_root():
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", ROOT)
    for name in ("lib", "lib64"):
        path = pathlib.Path("/", name)
        if path.is_symlink():
            (ROOT / name).symlink_to(os.readlink(path))
        elif path.exists():
            bind(path, path)
    for path in ("/usr/lib", "/usr/lib64", "/usr/share/ca-certificates", "/etc/ssl", "/etc/ld.so.cache",
                 "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"):
        path = pathlib.Path(path)
        if path.exists():
            bind(path.resolve(), path)
    for path in ("/dev", "/proc"):
        bind(pathlib.Path(path), path, read_only=False)
    bind(PROGRAM, "/usr/local/bin/weir")


def image():
    """The user, the variables, the entry point and the arguments of the image."""
    text = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[-1]
    [user] = re.findall(r"^USER (\d+):(\d+)$", text, re.M)
    environment = dict(re.findall(r"^ENV (\w+)=(\S+)$", text, re.M))
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", text, re.M)
    [arguments] = re.findall(r"^CMD (.*)$", text, re.M)
    return [*map(int, user)], environment, json.loads(entry), json.loads(arguments)


def fill(data, uid, gid):
    for folder in DATA.iterdir():
        own(pathlib.Path(shutil.copytree(folder, data / folder.name)), uid, gid)


def compose():
    """Compose's secrets of files are bind mounts: it ignores `uid`, `gid` and `mode` of a secret. Docker sets HOME to the user's
    home, which is in the read-only root, and mounts each tmpfs with `noexec`."""
    composition = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = composition["services"]["weir"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and "user" not in service
    (uid, gid), environment, entry, arguments = image()
    for volume in service["volumes"]:
        source, target, mode = volume.split(":")
        assert mode == "ro"
        bind((DEPLOY / source).resolve(), target)
    for name in service["secrets"]:
        bind((DEPLOY / composition["secrets"][name]["file"]).resolve(), f"/run/secrets/{name}")
    [folder] = service["tmpfs"]
    target, options = folder.split(":")
    options = dict(option.split("=") for option in options.split(","))
    fill(tmpfs(target, **options, flags="noexec,nosuid,nodev,"), uid, gid)
    home = inside("/home/nonroot")
    home.mkdir(parents=True)
    home.chmod(0o700)
    os.chown(home, uid, gid)
    return uid, gid, [], environment | {"HOME": "/home/nonroot"}, [entry + arguments]


def kubernetes(created, secrets):
    """The kubelet gives volumes to root and to the group `fsGroup`. Documentation: "Configure a Security Context for a Pod"."""
    pod = objects.deployment(created)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    context = pod["securityContext"]
    uid, gid, group = context["runAsUser"], context["runAsGroup"], context["fsGroup"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    _, environment, entry, _ = image()
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for volume in pod["volumes"]:
        target = mounts.pop(volume["name"])
        if "emptyDir" in volume:
            fill(tmpfs(target, 0, group, "2777"), uid, group)
            continue
        if "secret" in volume:
            files, mode = secrets, volume["secret"]["defaultMode"]
        else:
            configuration = created["ConfigMap", volume["configMap"]["name"]]["data"]
            files, mode = {name: text.encode() for name, text in configuration.items()}, 0o644
        folder = tmpfs(target, 0, group, "2755")
        for name, text in files.items():
            (folder / name).write_bytes(text)
            os.chown(folder / name, 0, group)
            (folder / name).chmod(mode)
    assert not mounts, mounts
    return uid, gid, [group], environment, [entry + container["args"]]


def systemd():
    """The guide's steps, and the unit. The user has the id that `useradd --system` gives first."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(DEPLOY / "weir.service")
    service = unit["Service"]
    assert (service["User"], service["Group"], service["ProtectSystem"]) == ("weir", "weir", "strict")
    uid = gid = 999
    (ROOT / "etc/weir").mkdir(mode=0o755)
    os.umask(0o022)
    written = ["chroot", ROOT, "/usr/local/bin/weir", "init", "--production", "/etc/weir/weir.toml"]
    subprocess.run(written, check=True, stdout=subprocess.DEVNULL)
    text = inside("/etc/weir/weir.toml")
    assert text.read_text() == (DEPLOY / "weir.toml").read_text()
    secrets = inside("/etc/weir/secrets")
    shutil.copytree(DEPLOY / "secrets", secrets)
    own(secrets, uid, gid)
    source, target = service["BindReadOnlyPaths"].split(":")
    bind(inside(source), target)
    fill(tmpfs("/var/lib/" + service["StateDirectory"], uid, gid, service["StateDirectoryMode"]), uid, gid)
    tmpfs("/tmp", 0, 0, "1777")
    os.umask(int(service["UMask"], 8))
    return uid, gid, [], {}, [service["ExecStartPre"].split(), service["ExecStart"].split()]


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


make_root()
if SET == "compose":
    start = compose()
elif SET == "kubernetes":
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    [generator] = kustomization["secretGenerator"]
    start = kubernetes(
        objects.kustomized(DEPLOY), {pathlib.Path(file).name: (DEPLOY / file).read_bytes() for file in generator["files"]}
    )
elif SET == "systemd":
    start = systemd()
else:
    values = {} if SET == "helm" else yaml.safe_load((DEPLOY / f"helm/{SET}.yaml").read_text())
    start = kubernetes(objects.rendered(DEPLOY / "helm/weir", values)[0], files(DEPLOY / "secrets"))
uid, gid, groups, environment, commands = start
environment |= {name: value for name, value in os.environ.items() if name.startswith("WEIR_")}
mount("-o", "remount,ro", ROOT)
os.chroot(ROOT)
os.chdir("/")
*before, last = commands
for command in before:
    subprocess.run(command, check=True, env=environment, user=uid, group=gid, extra_groups=groups, stdout=subprocess.DEVNULL)
os.setgroups(groups)
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
os.execve(last[0], last, environment)
