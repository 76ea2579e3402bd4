#!/usr/bin/env python3
"""Makes the databases of a release, for tests of migrations: make.py WEIR FOLDER

WEIR is the release's program. FOLDER gets weir.sqlite3, weir.postgres.sql, and keys/, the secrets of both. The script
plays the same story on SQLite and on PostgreSQL: usage of several kinds of work in an earlier month, and an archive of
it; then users, an organisation, keys, a voucher, sessions, finished swarms and a task. At the end, it kills the gateway
while streams and a swarm wait for a provider, so that open holds remain.

The gateway and PostgreSQL run under Debian's `faketime`, as both clocks decide about months.
"""

import datetime
import http.server
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

EARLIER, LATER = "2026-09-10", "2026-11-26"
POSTGRES = "/usr/lib/postgresql/15/bin"


class Provider(http.server.BaseHTTPRequestHandler):
    """Begins a stream, and never ends it. The text is long enough for a checkpoint that costs something."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "slow",
                 "choices": [{"index": 0, "delta": {"role": "assistant", "content": "word " * 400}}]}
        data = f"data: {json.dumps(chunk)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
        threading.Event().wait(3600)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def at(day, arguments):
    # An offset is the same in all processes of a server. The monotonic clock stays, because time-outs depend on it.
    offset = datetime.date.fromisoformat(day) - datetime.date.today()
    return ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-f", f"{offset.days}d"] + arguments


class Server:
    """A PostgreSQL server at a moment."""

    def __init__(self, folder, moment):
        self.port = free_port()
        command = [f"{POSTGRES}/postgres", "-D", folder, "-p", str(self.port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
        self.process = subprocess.Popen(["runuser", "-u", "postgres", "--"] + at(moment, command),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.folder = folder
        while subprocess.run([f"{POSTGRES}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode:
            time.sleep(0.1)

    @property
    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def stop(self):
        subprocess.run(["runuser", "-u", "postgres", "--", f"{POSTGRES}/pg_ctl", "-D", self.folder, "-m", "fast", "-w", "stop"],
                       check=True, stdout=subprocess.DEVNULL)
        self.process.wait()


class Gateway:
    """A gateway of the release in a folder, at a moment."""

    def __init__(self, weir, folder, moment):
        self.weir, self.folder, self.moment = weir, folder, moment
        self.process = subprocess.Popen(at(moment, [weir, "serve"]), cwd=folder, stdout=subprocess.DEVNULL,
                                        stderr=open(os.path.join(folder, "log"), "a"), start_new_session=True)
        with open(os.path.join(folder, "port")) as file:
            self.url = f"http://127.0.0.1:{file.read()}"
        # A new folder compiles each plugin, which takes minutes on a busy machine.
        for _ in range(3000):
            if self.process.poll() is not None:
                break
            try:
                if urllib.request.urlopen(f"{self.url}/health/ready").status == 200:
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise SystemExit(f"the gateway is not ready: {open(os.path.join(folder, 'log')).read()}")

    def run(self, *arguments):
        done = subprocess.run(at(self.moment, [self.weir, *arguments]), cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def tokens(self, subject):
        words = shlex.split(self.run("token", "web", "--user", subject))
        return dict(word.split(": ", 1) for word in words if ": " in word)

    def call(self, path, body=None, headers=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                read = answer.read()
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.code} {error.read().decode()}")
        return json.loads(read) if read[:1] in (b"{", b"[") else read

    def stop(self, kill=False):
        # faketime starts the gateway as its child, in the same process group.
        os.killpg(self.process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        self.process.wait()


def key_of(gateway, headers, **body):
    return {"authorization": f"Bearer {gateway.call('/api-keys', body, headers)['api_key']}"}


def use_each_kind(gateway, key):
    chat = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
    for _ in range(3):
        gateway.call("/chat", chat, key)
    gateway.call("/chat", {**chat, "session_id": "story"}, key)
    gateway.call("/chat", chat, {**key, "idempotency-key": "once"})
    gateway.call("/v1/images/generations", {"model": "demo-image", "prompt": "a weir"}, key)
    gateway.call("/v1/embeddings", {"model": "demo-embedding", "input": ["one", "two", "three"]}, key)
    gateway.call("/v1/rerank", {"model": "demo-rerank", "query": "weir", "documents": ["a weir", "a dam"]}, key)
    gateway.call("/v1/moderations", {"model": "demo-moderation", "input": ["one", "two"]}, key)
    gateway.call("/v1/audio/speech", {"model": "demo-speech", "input": "Hello", "voice": "alloy"}, key)


def swarm(name, model="demo"):
    return {"swarm_id": name, "max_total_credits": 20, "agents": [
        {"name": "scout", "system_prompt": "You research.", "task_prompt": "Find a fact.", "model": model},
        {"name": "writer", "system_prompt": "You write.", "task_prompt": "Write.", "depends_on": "scout", "model": model}]}


def story(weir, folder, moments, database):
    provider = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    provider.daemon_threads = True
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    for moment in moments:
        port = free_port()
        with open(os.path.join(folder, "port"), "w") as file:
            file.write(str(port))
        server = database(moment)
        with open(os.path.join(folder, "weir.toml"), "w") as file:
            url = f'database_url = "{server.url}"\n' if server else ""
            file.write(f"""dev = true\n{url}listen = "127.0.0.1:{port}"
[providers.slow]
adapter = "openai"
base_url = "http://127.0.0.1:{provider.server_address[1]}"
[models.slow]
context_window = 100000
max_output_tokens = 10000
default_output_tokens = 1000
supports_tools = true
upstreams = [{{ provider = "slow" }}]
price = {{ input = 1, output = 20 }}
""")
        print("starting the release at", moment, flush=True)
        gateway = Gateway(weir, folder, moment)
        print("playing", flush=True)
        alice, bob = gateway.tokens("alice"), gateway.tokens("bob")
        key = key_of(gateway, alice, name=f"key of {moment[:7]}")
        if moment == EARLIER:
            gateway.run("user", "set-plan", "--subject", "alice", "--plan", "guru")
            gateway.run("user", "top-up", "--subject", "alice", "--credits", "1000")
            use_each_kind(gateway, key)
            gateway.stop()
            if server:
                server.stop()
            continue

        gateway.run("ledger", "archive", "--before", "2026-10")
        gateway.call("/usage/me", headers=bob)
        for name in ("alice", "bob"):
            gateway.run("user", "set-plan", "--subject", name, "--plan", "guru")
        voucher = json.loads(gateway.run("voucher", "create", "--credits", "250", "--uses", "5", "--json"))
        gateway.call("/billing/redeem", {"code": voucher["code"]}, alice)
        gateway.run("user", "adjust", "--subject", "alice", "--credits", "12.5", "--reason", "a correction", "--id", "t-1")
        organisation = gateway.call("/organisations", {"name": "Story"}, alice)["organisation_id"]
        key_of(gateway, {**alice, "x-weir-account": organisation}, name="of the organisation")
        use_each_kind(gateway, key)
        for _ in range(2):
            gateway.call("/swarms", swarm("done"), {**key, "accept": "text/event-stream"})
        gateway.call("/api/agent/tasks", {**swarm("weekly"), "name": "weekly", "schedule": {"cron": "0 9 * * MON", "time_zone": "Europe/Berlin"}}, alice)

        # Streams and a swarm that wait: their holds are in the database after the first checkpoint.
        slow = {"model": "slow", "max_tokens": 5000, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
        for headers in (key, key_of(gateway, bob, name="bob")):
            request = urllib.request.Request(gateway.url + "/chat", json.dumps(slow).encode(),
                                             {"content-type": "application/json", **headers})
            urllib.request.urlopen(request, timeout=60).readline()
        gateway.call("/swarms", swarm("waits", "slow"), key)
        time.sleep(6)
        gateway.stop(kill=True)
        return server


def main():
    weir, target = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    os.makedirs(target, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, "sqlite")
        os.mkdir(folder)
        story(weir, folder, (EARLIER, LATER), lambda moment: None)
        subprocess.run(["sqlite3", os.path.join(folder, ".weir/weir.db"), f"VACUUM INTO '{target}/weir.sqlite3'"], check=True)
        shutil.copytree(os.path.join(folder, ".weir/keys"), os.path.join(target, "keys"), dirs_exist_ok=True)

        data = tempfile.mkdtemp(dir="/tmp")
        shutil.chown(data, "postgres")
        subprocess.run(["runuser", "-u", "postgres", "--", f"{POSTGRES}/initdb", "-D", data, "-A", "trust", "-E", "UTF8", "--locale=C"],
                       check=True, stdout=subprocess.DEVNULL)
        folder = os.path.join(work, "postgres")
        os.makedirs(os.path.join(folder, ".weir"), mode=0o700)
        shutil.copytree(os.path.join(target, "keys"), os.path.join(folder, ".weir/keys"))
        server = story(weir, folder, (EARLIER, LATER), lambda moment: Server(data, moment))
        with open(os.path.join(target, "weir.postgres.sql"), "w") as file:
            subprocess.run([f"{POSTGRES}/pg_dump", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "--no-owner", "postgres"],
                           check=True, stdout=file)
        server.stop()
        shutil.rmtree(data)


main()
