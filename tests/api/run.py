"""Asks a gateway of its own whatever its document of the API allows, and what it does not, with Schemathesis.

Usage: run.py WEIR SCHEMATHESIS [--long] [-- ARGUMENTS]

`WEIR` is the weir command, `SCHEMATHESIS` that of Schemathesis. Each listener is asked: the public one as an
administrator, and once more with a key; the internal one as a service. `--long` takes more examples of each endpoint.
"""

import itertools
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def forward(port):
    """A port that leads to another, from an address of this machine's own for each connection.

    Ten wrong proofs shut an address out, and many of the requests have wrong proofs on purpose.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    addresses = (f"127.{a}.{b}.{c}" for a in range(1, 250) for b in range(250) for c in range(1, 250))

    def copy(source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, target):
                end.close()

    def serve():
        while True:
            client, _ = listener.accept()
            gateway = socket.create_connection(("127.0.0.1", port), source_address=(next(addresses), 0))
            for pair in ((client, gateway), (gateway, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def wait_until_ready(process, port):
    for _ in range(600):
        if process.poll() is not None:
            sys.exit("the gateway has ended")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready"):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit("the gateway is not ready after a minute")


def main():
    weir, schemathesis = map(os.path.abspath, sys.argv[1:3])
    rest = sys.argv[3:]
    is_long = "--long" in rest
    more = [argument for argument in rest if argument not in ("--long", "--")]
    with tempfile.TemporaryDirectory() as folder:
        public, internal = free_port(), free_port()
        config = pathlib.Path(folder, "weir.toml")
        config.write_text(
            f'dev = true\nlisten = "127.0.0.1:{public}"\ninternal_listen = "127.0.0.1:{internal}"\n'
            f'data_dir = "{folder}/data"\n'
            # Nobody is to be kept waiting here.
            "[rate_limits]\nfree = 1000000\nguru = 1000000\npro = 1000000\naddress = 1000000\n"
        )

        def command(*arguments):
            ran = subprocess.run([weir, "--config", config, *arguments], capture_output=True, text=True)
            if ran.returncode:
                sys.exit(f"weir {' '.join(arguments)}: {ran.stderr}")
            return ran.stdout

        environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        log = pathlib.Path(folder, "log")
        gateway = subprocess.Popen(
            [weir, "--config", config, "serve"], env=environment, stdout=log.open("wb"), stderr=subprocess.STDOUT
        )
        try:
            wait_until_ready(gateway, public)
            failed = ask_all(schemathesis, folder, command, (forward(public), forward(internal)), is_long, more)
        finally:
            gateway.terminate()
            gateway.wait()
        errors = [line for line in log.read_text(errors="replace").splitlines() if "panicked" in line]
        if errors:
            print("\n".join(errors))
        sys.exit(1 if failed or errors else 0)


def ask_all(schemathesis, folder, command, ports, is_long, more):
    public, internal = ports
    # As curl takes them.
    admin = shlex.split(command("token", "web", "--user", "tester", "--admin"))
    another = shlex.split(command("token", "web", "--user", "another", "--admin"))
    key = command("key", "create", "--user", "keyed").split()
    key = next(word for word in key if word.startswith("inf_"))
    for line in command("user", "list").splitlines()[1:]:
        user = line.split()[0]
        command("user", "set-plan", "--user", user, "--plan", "pro")
        command("user", "top-up", "--user", user, "--credits", "1000000")
    scopes = [argument for scope in ("model:call", "plugins:write") for argument in ("--scope", scope)]
    service = shlex.split(command("token", "service", *scopes))
    # The administrator who may end the rights and providers of the other callers comes last.
    asked = [
        ("with a key", public, ["-H", f"X-Api-Key: {key}"], keyed()),
        ("as a service", internal, service, []),
        ("as an administrator", public, admin, exclude(ENDS)),
        ("as an administrator who may end what others need", public, another, include(ENDS)),
    ]
    failed = []
    for name, port, proof, selection in asked:
        print(f"\n== {name}", flush=True)
        examples = "200" if is_long else "10"
        ran = subprocess.run(
            [
                schemathesis, "--config-file", HERE / "schemathesis.toml", "run",
                f"http://127.0.0.1:{port}/openapi.json", "--checks", "all", "--max-examples", examples,
                # One connection for each request, which has an address of its own.
                "-H", "Connection: close", *proof, *selection, *more,
            ],
            cwd=folder,
            env={**os.environ, "SCHEMATHESIS_HOOKS": str(HERE / "hooks.py")},
        )
        if ran.returncode:
            failed.append(name)
    return failed


# With these operations, administrators could lock themselves out, or disable providers. weir would then reject later requests.
ENDS = ("disable_user", "revoke_admin", "replace_catalog_layer", "restore_catalog_layer")


def include(operations):
    return [argument for operation in operations for argument in ("--include-operation-id", operation)]


def exclude(operations):
    return [argument for operation in operations for argument in ("--exclude-operation-id", operation)]


def keyed():
    """Operations that accept a key as well as a web user. The other operations are tested as an administrator."""
    tags = ("models", "sessions", "usage", "tasks")
    return list(itertools.chain.from_iterable(("--include-tag", tag) for tag in tags))


main()
