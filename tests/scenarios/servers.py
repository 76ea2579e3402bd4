"""Private servers for the scenarios: weir, PostgreSQL, PgBouncer, Redis, a provider, and an address that fails over.

Each server has a free port of 127.0.0.1 and a folder of its own, and ends with its scenario. It is stopped by its
process id.
"""

import contextlib
import dataclasses
import glob
import http.client
import http.server
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request

PASSWORD = "store-secret-9876543210"

# Time limit for the start of a server. A debug build compiles its plugins for a minute, and longer on a busy machine.
STARTS_WITHIN = 300


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(condition, seconds, pause=0.02):
    """Returns the seconds until a condition holds, or None if that takes longer than the limit."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            return None
        time.sleep(pause)
    return time.monotonic() - began


def must(condition, seconds, claim):
    waited = wait_for(condition, seconds)
    if waited is None:
        raise RuntimeError(f"{claim}: not within {seconds} s")
    return waited


def unprivileged(command):
    """PostgreSQL and PgBouncer refuse to run as root."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--", *command]


class Process:
    """A child process, which ends by its id."""

    def __init__(self, stack, command, log, **options):
        with open(log, "ab") as file:
            streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file, **options}
            self.child = subprocess.Popen(command, start_new_session=True, **streams)
        stack.callback(self.kill)

    def has_ended(self):
        return self.child.poll() is not None

    def freeze(self):
        """Stops it and its children: their connections stay open and silent."""
        os.kill(self.child.pid, signal.SIGSTOP)
        for child in self.children():
            os.kill(child, signal.SIGSTOP)

    def children(self):
        with open(f"/proc/{self.child.pid}/task/{self.child.pid}/children") as file:
            return [int(child) for child in file.read().split()]

    def kill(self):
        if not self.has_ended():
            # Children of PostgreSQL end with it, unless they are frozen.
            children = self.children()
            self.child.kill()
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        self.child.wait()


def private_folder(work, name):
    folder = os.path.join(work, f"{name}-{free_port()}")
    os.mkdir(folder, 0o700)
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    return folder


class Postgres:
    """A PostgreSQL server."""

    BINARIES = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))

    def __init__(self, stack, work, standby_of=None):
        self.stack, self.work = stack, work
        self.folder, self.port = private_folder(work, "postgres"), free_port()
        data = os.path.join(self.folder, "data")
        if standby_of:
            self.tool("pg_basebackup", "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata", data,
                      "--dbname", standby_of.url("postgres"))
            # A promoted server waits for no standby of its own.
            with open(os.path.join(data, "postgresql.auto.conf"), "a") as settings:
                settings.write("synchronous_standby_names = ''\n")
        else:
            password = os.path.join(self.folder, "password")
            with open(password, "w") as file:
                file.write(PASSWORD)
            os.chmod(password, 0o644)
            self.tool("initdb", "--auth=scram-sha-256", "--username=weir", "--encoding=UTF8", "--no-locale", "--no-sync",
                      "--pgdata", data, "--pwfile", password)
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
                    "max_connections": 200, "fsync": "off", "full_page_writes": "off"}
        command = [self.binary("postgres"), "-D", data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self.process = Process(stack, unprivileged(command), os.path.join(self.folder, "log"), cwd="/")
        must(lambda: self.try_sql("SELECT 1") == "1", 60, "PostgreSQL starts")

    def binary(self, name):
        return os.path.join(self.BINARIES[-1], name)

    def tool(self, name, *arguments):
        command = unprivileged([self.binary(name), *arguments])
        done = subprocess.run(command, cwd="/", capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr}")
        return done.stdout

    def url(self, database, port=None):
        return f"postgres://weir:{PASSWORD}@127.0.0.1:{port or self.port}/{database}"

    def try_sql(self, statement, database="postgres"):
        command = [self.binary("psql"), "-AtXq", "-v", "ON_ERROR_STOP=1", "-c", statement, self.url(database)]
        done = subprocess.run(command, capture_output=True, text=True)
        return None if done.returncode else done.stdout.strip()

    def sql(self, statement, database="postgres"):
        answer = self.try_sql(statement, database)
        if answer is None:
            raise RuntimeError(f"PostgreSQL refuses: {statement}")
        return answer

    def create(self, database):
        self.sql(f"CREATE DATABASE {database}")
        return self.url(database)

    def copy(self, source, target):
        """Backs a database up, and restores it under another name."""
        self.create(target)
        dump = self.tool("pg_dump", "--no-owner", self.url(source))
        command = [self.binary("psql"), "-Xq", "-v", "ON_ERROR_STOP=1", self.url(target)]
        subprocess.run(command, input=dump, text=True, check=True, stdout=subprocess.DEVNULL)
        return self.url(target)

    def standby(self):
        return Postgres(self.stack, self.work, standby_of=self)

    def wait_for_standby(self):
        """Lets commits wait for the standby, so that a promoted one has all that a client was told."""
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.sql("SELECT pg_reload_conf()")
        followers = "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        must(lambda: self.try_sql(followers) == "1", 60, "the standby follows")

    def pooler(self, pool_mode, database):
        """Starts PgBouncer before this server, and returns the database's URL through it."""
        folder, port = private_folder(self.work, "pgbouncer"), free_port()
        users, settings = (os.path.join(folder, name) for name in ("users", "pgbouncer.ini"))
        with open(users, "w") as file:
            file.write(f'"weir" "{PASSWORD}"\n')
        with open(settings, "w") as file:
            # PgBouncer refuses `extra_float_digits`, which drivers send, unless it is told to ignore it:
            # https://www.pgbouncer.org/config.html#ignore_startup_parameters
            file.write(f"[databases]\n* = host=127.0.0.1 port={self.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
                       f"listen_port = {port}\nunix_socket_dir =\nauth_type = plain\nauth_file = {users}\n"
                       f"pool_mode = {pool_mode}\nignore_startup_parameters = extra_float_digits\n")
        os.chmod(users, 0o644)
        command = unprivileged(["/usr/sbin/pgbouncer", settings])
        Process(self.stack, command, os.path.join(folder, "log"), cwd="/")
        must(lambda: is_open(port), 30, "PgBouncer starts")
        return self.url(database, port)


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    except OSError:
        return False


class Redis:
    """A Redis server without a password."""

    def __init__(self, stack, work):
        folder, self.port = private_folder(work, "redis"), free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        Process(stack, unprivileged(command), os.path.join(folder, "log"), cwd="/")
        must(lambda: is_open(self.port), 30, "Redis starts")

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def command(self, text):
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as stream:
            stream.sendall(text.encode() + b"\r\n")
            answer = stream.makefile().readline().strip()
        if answer.startswith("-"):
            raise RuntimeError(f"{text}: {answer}")
        return answer


class Switch:
    """An address that leads to one server, and later to another. Connections stay with the server they were made to."""

    def __init__(self, stack, port):
        self.target, self.pairs, self.made = port, [], []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        stack.callback(self.close)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            target = self.target
            try:
                far = socket.create_connection(("127.0.0.1", target), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self.pairs.append((near, far))
            self.made.append(target)
            threading.Thread(target=self.relay, args=(near, far), daemon=True).start()

    @staticmethod
    def relay(near, far):
        try:
            while True:
                for side in select.select([near, far], [], [])[0]:
                    some = side.recv(65536)
                    if not some:
                        return
                    (far if side is near else near).sendall(some)
        except (OSError, ValueError):
            pass
        finally:
            # `close` alone lets the other end wait while another thread uses the socket.
            for side in (near, far):
                try:
                    side.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def cut(self):
        """Closes all connections."""
        pairs, self.pairs = self.pairs, []
        for side in (side for pair in pairs for side in pair):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()


class Provider:
    """A provider with OpenAI's API, which counts its requests. `behaviour` is `serve`, `hang`, `blanks`, or a status."""

    def __init__(self, stack, behaviour="serve"):
        self.behaviour, self.calls, self.credentials = behaviour, 0, []
        self.ended = threading.Event()
        provider, lock = self, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    provider.calls += 1
                    provider.credentials.append(self.headers["authorization"])
                if provider.behaviour == "serve":
                    self.serve(body)
                elif provider.behaviour == "hang":
                    provider.ended.wait()
                elif provider.behaviour == "blanks":
                    self.send_blanks(body)
                else:
                    error = {"error": {"message": "scripted", "type": "server_error", "code": None}}
                    self.send(provider.behaviour, "application/json", json.dumps(error))

            def serve(self, body):
                usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
                if self.path.endswith("/embeddings"):
                    vector = {"object": "embedding", "index": 0, "embedding": [0.1, 0.2]}
                    answer = {"object": "list", "model": body["model"], "data": [vector], "usage": usage}
                    self.send(200, "application/json", json.dumps(answer))
                    return
                answer = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
                if not body.get("stream"):
                    message = {"role": "assistant", "content": "Hello"}
                    choice = {"index": 0, "message": message, "finish_reason": "stop"}
                    answer |= {"object": "chat.completion", "choices": [choice], "usage": usage}
                    self.send(200, "application/json", json.dumps(answer))
                    return
                answer["object"] = "chat.completion.chunk"
                words = {"index": 0, "delta": {"role": "assistant", "content": "Hello"}, "finish_reason": None}
                end = {"index": 0, "delta": {}, "finish_reason": "stop"}
                chunks = [answer | {"choices": [words]}, answer | {"choices": [end]},
                          answer | {"choices": [], "usage": usage}]
                events = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
                self.send(200, "text/event-stream", "".join(f"data: {event}\n\n" for event in events))

            def send(self, status, media_type, text):
                self.send_response(status)
                self.send_header("content-type", media_type)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def send_blanks(self, body):
                is_stream = body.get("stream")
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
                self.send_header("connection", "close")
                self.end_headers()
                try:
                    while not provider.ended.wait(0.1):
                        self.wfile.write(b": wait\n\n" if is_stream else b"\n")
                except OSError:
                    pass
                self.close_connection = True

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                # weir closed a connection.
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        stack.callback(self.close)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()


@dataclasses.dataclass
class Answer:
    """A response; its status is 0 if there was none in time."""

    status: int
    text: str
    headers: dict
    seconds: float

    def json(self):
        return json.loads(self.text)


class SocketConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("local", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, method, path, body=None, headers=None):
    began = time.monotonic()
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, text, found, time.monotonic() - began)
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, repr(error), {}, time.monotonic() - began)
    finally:
        connection.close()


# Longer than the defaults: a busy machine must not count as an outage.
STORES = "[stores]\nacquire_ms = 2000\nstatement_ms = 5000\ncache_ms = 2000\n"


class Weir:
    """A gateway in development mode, in a folder of its own. All gateways of a binary share a home."""

    def __init__(self, env, settings="", tables="", folder=None, log=None, wait=True, stores=STORES):
        self.env, self.folder = env, folder or os.path.join(env.work, f"weir-{free_port()}")
        self.port = free_port()
        os.makedirs(self.folder, 0o700, exist_ok=True)
        env.share_compiled_plugins(self.folder)
        with open(os.path.join(self.folder, "weir.toml"), "w") as file:
            file.write(f'dev = true\nlisten = "127.0.0.1:{self.port}"\n{settings}\n{stores}{tables}')
        self.log_path, self.output = (os.path.join(self.folder, name) for name in ("log", "output"))
        self.process = None
        self.start(log, wait)

    def start(self, log=None, wait=True):
        for path in (self.log_path, self.output):
            open(path, "w").close()
        output = open(self.output, "ab")
        error = log if log is not None else open(self.log_path, "ab")
        self.process = Process(self.env.stack, [self.env.binary, "serve"], os.devnull, cwd=self.folder, env=self.env.variables,
                               stdout=output, stderr=error)
        output.close()
        if log is None:
            error.close()
        self.began = time.monotonic()
        if not wait:
            return
        must(lambda: self.is_ready() or self.process.has_ended(), STARTS_WITHIN, "weir starts")
        if self.process.has_ended():
            raise RuntimeError(f"weir ended: {self.log()}")
        must(lambda: "inf_" in self.greeting(), 30, "weir prints a key")
        self.key = re.search(r"inf_[-\w]+", self.greeting())[0]

    def greeting(self):
        with open(self.output) as file:
            return file.read()

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def get(self, path, key=None, timeout=30):
        return self.ask("GET", path, None, key, timeout)

    def ask(self, method, path, body=None, key=None, timeout=30, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        given = {**(headers or {}), **({"authorization": f"Bearer {key}"} if key else {})}
        return ask(connection, method, path, body, given)

    def chat(self, model="demo", key=None, timeout=30, stream=False):
        body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]}
        return self.ask("POST", "/v1/chat/completions", body, key or self.key, timeout)

    def embed(self, model, timeout=30):
        return self.ask("POST", "/v1/embeddings", {"model": model, "input": "Hello"}, self.key, timeout)

    def write(self, timeout=30):
        """An operator's write: the policy of a slot, by the admin socket."""
        connection = SocketConnection(os.path.join(self.folder, ".weir/admin.sock"), timeout)
        return ask(connection, "PUT", "/admin/plugins/openai/policy", {"on_quarantine": "refuse"})

    def is_ready(self):
        return self.get("/health/ready", timeout=5).status == 200

    def metric(self, name, **labels):
        """The value of a series as a text, or None."""
        wanted = ",".join(f'{label}="{value}"' for label, value in labels.items())
        series = f"{name}{{{wanted}}} " if wanted else f"{name} "
        lines = self.get("/metrics").text.splitlines()
        return next((line.removeprefix(series) for line in lines if line.startswith(series)), None)

    def run(self, *arguments):
        done = self.env.run(*arguments, folder=self.folder)
        if done.returncode:
            raise RuntimeError(f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def key_of(self, user):
        return re.search(r"inf_[-\w]+", self.run("key", "create", "--user", user))[0]

    def sign_in(self, subject):
        """The headers of a web user."""
        words = shlex.split(self.run("token", "web", "--user", subject))
        return dict(word.split(": ", 1) for word in words if ": " in word)

    def signal(self, number):
        os.kill(self.process.child.pid, number)

    def stop(self, limit=60):
        """Stops it by SIGTERM, and returns the seconds until its end; None if it did not end in time."""
        self.signal(signal.SIGTERM)
        took = wait_for(self.process.has_ended, limit)
        self.process.kill()
        return took
