#!/usr/bin/env python3
"""Ten incidents of an operator, against a weir binary: run.py WEIR [OTHER] [--only 1,5] [--keep FOLDER]

Each scenario starts its own gateway and servers, causes the incident, and measures what clients and operators see, by HTTP,
signals, files, logs and metrics. The output is a table. With a second binary, such as that of an earlier release, the
table compares both. The exit status is 1 if a scenario did not hold for the first binary.

It needs Debian's postgresql, redis-server and pgbouncer, and takes 3 minutes for a binary that holds.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

# The repository gets no folder of compiled Python.
sys.dont_write_bytecode = True

from servers import Postgres, Provider, Redis, Switch, Weir, free_port, must, wait_for

# Seconds from the moment at which an address leads to a server that works, until weir serves again.
BACK_WITHIN = 10


@dataclasses.dataclass
class Outcome:
    held: bool
    figures: str


class Env:
    """What scenarios of one binary share: the binary, a home, and the compiled plugins of its first start."""

    def __init__(self, binary, work):
        self.binary, self.work = os.path.abspath(binary), work
        self.home, self.compiled, self.stack = os.path.join(work, "home"), os.path.join(work, "compiled"), None
        os.mkdir(self.home, 0o700)
        # A developer's environment must not change a scenario.
        self.variables = {"PATH": os.environ["PATH"], "HOME": self.home}

    def run(self, *arguments, folder):
        return subprocess.run([self.binary, *arguments], cwd=folder, env=self.variables, capture_output=True, text=True)

    def keep_compiled_plugins(self, folder):
        """Keeps the plugins that a gateway compiled in its own data folder, as earlier releases do."""
        for name in ("cache", "keys"):
            found = os.path.join(folder, ".weir", name)
            if os.path.isdir(found):
                shutil.copytree(found, os.path.join(self.compiled, name))

    def share_compiled_plugins(self, folder):
        data = os.path.join(folder, ".weir")
        os.makedirs(data, 0o700, exist_ok=True)
        cache, keys = (os.path.join(self.compiled, name) for name in ("cache", "keys"))
        if os.path.isdir(cache) and not os.path.isdir(os.path.join(data, "cache")):
            shutil.copytree(cache, os.path.join(data, "cache"))
            os.makedirs(os.path.join(data, "keys"), 0o700, exist_ok=True)
            for name in os.listdir(keys):
                if name.startswith("plugin-cache"):
                    shutil.copy2(os.path.join(keys, name), os.path.join(data, "keys", name))


def seconds(value):
    return "never" if value is None else f"{value:.1f} s"


def statuses(answers):
    """Counts of statuses, such as `200 × 58, 503 × 2`."""
    counts = {}
    for answer in answers:
        counts[answer.status] = counts.get(answer.status, 0) + 1
    return ", ".join(f"{status or 'none'} × {count}" for status, count in sorted(counts.items()))


def all_of(answers, status):
    return all(answer.status == status for answer in answers)


def at_once(calls, most=100):
    with concurrent.futures.ThreadPoolExecutor(min(len(calls), most)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def provider(env, name, server, secret="secret-of-a-provider"):
    """The table of a provider, with a credential in a file."""
    path = os.path.join(env.work, f"credential-{free_port()}")
    with open(path, "w") as file:
        file.write(secret)
    return path, f'[providers.{name}]\nadapter = "openai"\nbase_url = "{server.url}"\ncredential = {{ file = "{path}" }}\n'


def model(name, *providers, kind="chat"):
    upstreams = ", ".join(f'{{ provider = "{provider}" }}' for provider in providers)
    output = "" if kind == "embeddings" else "max_output_tokens = 1000\ndefault_output_tokens = 100\n"
    price = "{ input = 1, output = 0 }" if kind == "embeddings" else "{ input = 1, output = 2 }"
    return f"[models.{name}]\nkind = \"{kind}\"\ncontext_window = 100000\n{output}upstreams = [{upstreams}]\nprice = {price}\n"


def first_start(env):
    """10. The first start of a user, and `weir check` in a second folder."""
    weir = Weir(env, wait=False)
    alive = must(lambda: weir.get("/health", timeout=5).status == 200, 60, "weir answers")
    claims_ok, seen = False, []

    def is_ready():
        nonlocal claims_ok
        health, ready = weir.get("/health", timeout=5), weir.get("/health/ready", timeout=5)
        body = health.json() if health.text.startswith("{") else {}
        if health.text not in seen:
            seen.append(health.text)
        claims_ok |= ready.status == 503 and body.get("ready") is not False
        return ready.status == 200

    must(is_ready, 600, "weir is ready")
    ready = time.monotonic() - weir.began
    weir.stop()
    env.keep_compiled_plugins(weir.folder)
    second = os.path.join(env.work, "second")
    os.mkdir(second, 0o700)
    began = time.monotonic()
    checked = env.run("check", folder=second)
    took = time.monotonic() - began
    return Outcome(
        not claims_ok and checked.returncode == 0 and took < min(5, ready / 4),
        f"/health 200 after {alive:.1f} s, ready after {ready:.1f} s; /health meanwhile: {seen[0]}; `check` in a second folder "
        f"{took:.1f} s (exit {checked.returncode})",
    )


class Load:
    """Requests of clients and writes of an operator, one after the other in some threads, with readiness before each."""

    def __init__(self, weir, threads):
        self.weir, self.results, self.stopped = weir, [], threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(threads)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        while not self.stopped.is_set():
            is_write = number % 4 == 0
            was_ready = self.weir.is_ready()
            answer = self.weir.write() if is_write else self.weir.chat()
            self.results.append((time.monotonic(), is_write, was_ready, answer))
            # Clients retry.
            time.sleep(0.02)

    def back_after(self, since, quiet=3):
        """Returns the seconds until requests and writes succeed and go on succeeding; None if they do not yet."""
        results = [(at, is_write, answer.status == 200) for at, is_write, _, answer in list(self.results) if at >= since]
        failed = [at for at, _, succeeded in results if not succeeded]
        last = max(failed, default=since)
        after = {is_write: min((at for at, write, good in results if write == is_write and good and at > last), default=None)
                 for is_write in (True, False)}
        if None in after.values() or time.monotonic() - max(after.values()) < quiet:
            return None
        return max(after.values()) - since

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def charged_requests(weir):
    """The ids of all requests that the caller was charged for."""
    found, cursor = set(), ""
    while True:
        page = weir.get(f"/usage/requests?limit=100{cursor}", weir.key)
        if page.status != 200:
            raise RuntimeError(f"the list of requests: {page.status} {page.text}")
        page = page.json()
        found |= {request["id"] for request in page["requests"] if request["status"] == "settled"}
        if not page["next"]:
            return found
        cursor = f"&before={page['next']}"


def postgres_failover(env):
    """1. PostgreSQL fails over behind an unchanged address, which leads to a standby for a moment."""
    primary = Postgres(env.stack, env.work)
    primary.create("weir")
    switch = Switch(env.stack, primary.port)
    # weir notices a frozen server by these limits. A request may wait for several.
    stores = "[stores]\nacquire_ms = 1000\nstatement_ms = 1000\n"
    weir = Weir(env, f'database_url = "{primary.url("weir", switch.port)}"', stores=stores)
    standby = primary.standby()
    primary.wait_for_standby()
    load = Load(weir, 8)
    time.sleep(2)
    figures, held = [], True
    for loss in ("killed", "frozen", "demoted", "demoted"):
        made = len(switch.made)
        if loss == "frozen":
            primary.process.freeze()
        else:
            primary.process.kill()
            switch.cut()
        standby.sql("SELECT pg_promote()")
        following = standby.standby()
        if loss == "demoted":
            switch.target = following.port
            must(lambda: following.port in switch.made[made:], 60, "weir connects to the standby")
            time.sleep(1)
        switch.target = standby.port
        since = time.monotonic()
        wait_for(lambda: load.back_after(since) is not None, 60, 0.2)
        back = load.back_after(since)
        results = list(load.results)
        lied = [answer for at, _, was_ready, answer in results if at >= since + BACK_WITHIN and was_ready and answer.status != 200]
        writes = at_once([weir.write for _ in range(60)], most=8)
        held &= back is not None and back <= BACK_WITHIN and not lied and all_of(writes, 200)
        figures.append(f"{loss}: back after {seconds(back)}, 60 writes then {statuses(writes)}, {len(lied)} failures while ready "
                       f"after {BACK_WITHIN} s")
        primary, standby = standby, following
        primary.wait_for_standby()
    time.sleep(1)
    load.stop()
    chats = [answer for _, is_write, _, answer in load.results if not is_write]
    paid = {answer.headers["x-request-id"] for answer in chats if answer.status == 200}
    unknown = [answer for answer in chats if answer.status in (401, 500)]
    must(weir.is_ready, 120, "weir is ready")
    lost = paid - charged_requests(weir)
    held &= not lost and not unknown
    figures.append(f"{len(chats)} requests: {statuses(chats)}; {len(lost)} of {len(paid)} charges lost")
    return Outcome(held, "; ".join(figures))


def hanging_provider(env):
    """2. A provider that hangs, and a second one that works."""
    total = 15
    tables, firsts, second = f"[timeouts]\nfirst_byte_ms = 1000\nfirst_token_ms = 1000\ntotal_ms = {total * 1000}\n", {}, Provider(env.stack)
    tables += provider(env, "second", second)[1]
    for hang in ("hang", "blanks"):
        firsts[hang] = Provider(env.stack, hang)
        tables += provider(env, hang, firsts[hang])[1]
        for name, kind in (("chat", "chat"), ("stream", "chat"), ("embed", "embeddings")):
            tables += model(f"{hang}-{name}", hang, "second", kind=kind)
    weir = Weir(env, tables=tables)

    def calls(times, hang):
        limit = 4 * total
        for _ in range(times):
            yield lambda: weir.chat(f"{hang}-chat", timeout=limit)
            yield lambda: weir.chat(f"{hang}-stream", timeout=limit, stream=True)
            yield lambda: weir.embed(f"{hang}-embed", timeout=limit)

    figures, held = [], True
    for hang, first in firsts.items():
        during = at_once(list(calls(6, hang)))
        asked = first.calls
        later = at_once(list(calls(1, hang)))
        slowest, then = (max(answer.seconds for answer in answers) for answers in (during, later))
        asked_later = first.calls - asked
        held &= all_of(during + later, 200) and slowest < total - 2 and asked_later == 0
        figures.append(f"{'no bytes' if hang == 'hang' else 'blank lines'}: {statuses(during)} in at most {slowest:.1f} s, the next 3 "
                       f"{statuses(later)} in {then:.1f} s, {asked_later} of them at the hanging provider")
    return Outcome(held, "; ".join(figures))


def failing_provider(env):
    """3. A provider that answers 500 to one account, to an organisation, and to five accounts."""
    first, second = Provider(env.stack, 500), Provider(env.stack)
    names = ("account", "organisation", "five")
    tables = provider(env, "first", first)[1] + provider(env, "second", second)[1]
    tables += "".join(model(name, "first", "second") for name in names)
    weir = Weir(env, tables=tables)
    all_answers, figures, held = [], [], True

    def ask_as(keys, name):
        before = first.calls
        answers = [weir.chat(name, key) for key in keys]
        all_answers.extend(answers)
        return first.calls - before

    def is_open(name):
        return weir.metric("weir_upstream_breaker_open", upstream=f"first/{name}")

    asked = ask_as([weir.key] * 12, "account")
    again = ask_as([weir.key] * 3, "account")
    held &= asked <= 6 and again == 0
    figures.append(f"one account: {asked} calls of the first 12 requests, {again} of 3 more")

    alice = weir.sign_in("alice")
    made = weir.ask("POST", "/organisations", {"name": "Acme"}, headers=alice)
    organisation = made.json()["organisation_id"]
    weir.run("user", "top-up", "--user", organisation, "--credits", "1000")
    as_member = {**alice, "x-weir-account": organisation}
    keys = [weir.ask("POST", "/api-keys", {"name": f"key-{number}"}, headers=as_member).json()["api_key"] for number in range(4)]
    asked = ask_as(keys * 3, "organisation")
    again = ask_as(keys, "organisation")
    held &= asked <= 6 and again == 0
    figures.append(f"an organisation with 4 keys: {asked} calls of 12 requests, {again} of 4 more")

    users = [weir.key_of(f"user-{number}") for number in range(6)]
    asked = ask_as(users[:5], "five")
    opened = is_open("five")
    again = ask_as(users[5:] * 3, "five")
    held &= opened == "1" and again == 0
    figures.append(f"five accounts: {asked} calls of 5 requests, breaker_open {opened}, {again} calls of a sixth account's 3")
    held &= all_of(all_answers, 200)
    figures.append(f"clients got {statuses(all_answers)}")
    return Outcome(held, "; ".join(figures))


def unread_log(env):
    """4. A log reader that stops reading, and then SIGTERM."""
    refusing = Provider(env.stack, 401)
    tables = provider(env, "first", refusing)[1] + model("refused", "first")
    reading, writing = os.pipe()
    env.stack.callback(os.close, reading)
    env.stack.callback(os.close, writing)
    reads = threading.Event()
    reads.set()

    def read():
        os.set_blocking(reading, False)
        while reads.is_set():
            with contextlib.suppress(BlockingIOError):
                os.read(reading, 65536)
            time.sleep(0.01)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    # The descriptions of both ends are separate, so that only this end does not block.
    filling = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
    env.stack.callback(os.close, filling)
    weir = Weir(env, tables=tables, log=writing)
    reads.clear()
    reader.join()
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(filling, b"\n" * size)
    answers, probes = [], []
    began = time.monotonic()
    while time.monotonic() - began < 15:
        answers += at_once([lambda: weir.chat("refused", timeout=5)] * 4 + [lambda: weir.chat(timeout=5)] * 4)
        probes.append(weir.get("/health", timeout=5))
    ended = weir.stop(30)
    served = [answer for answer in answers if answer.status == 200]
    slowest = max(probe.seconds for probe in probes)
    without = sum(answer.status == 0 for answer in answers)
    held = all_of(probes, 200) and not without and ended is not None and ended < 10
    return Outcome(held, f"{len(answers)} requests in 15 s: {len(served)} served, {without} without a response; /health "
                         f"{statuses(probes)}, slowest {slowest:.1f} s; SIGTERM ends it: {seconds(ended)}")


def full_redis(env):
    """5. Redis answers PING and refuses writes."""
    redis = Redis(env.stack, env.work)
    # It refuses what would need memory, instead of removing keys.
    redis.command("CONFIG SET maxmemory-policy noeviction")
    weir = Weir(env, f'redis_url = "{redis.url}"')
    figures, held = [], True
    for name, refuse, accept in (
        ("maxmemory", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("min-replicas-to-write", "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ):
        must(weir.is_ready, 60, "weir is ready")
        lines = weir.log().count("\n")
        redis.command(refuse)
        ready = weir.get("/health/ready")
        chats = [weir.chat() for _ in range(30)]
        up = weir.metric("weir_store_up", store="cache")
        errors = [line for line in weir.log().splitlines()[lines:] if re.search(r" (ERROR|WARN) ", line)]
        redis.command(accept)
        back = wait_for(lambda: weir.is_ready() and weir.chat().status == 200, 60)
        held &= ready.status == 503 and all_of(chats, 503) and up == "0" and len(errors) <= 3 and back is not None and back <= BACK_WITHIN
        figures.append(f"{name}: ready {ready.status}, 30 requests {statuses(chats)}, store_up {up}, {len(errors)} warnings and "
                       f"errors, back after {seconds(back)}")
    return Outcome(held, "; ".join(figures))


def empty_secret(env):
    """6. The file of a secret is empty, cut short or missing at SIGHUP."""
    server = Provider(env.stack)
    path, table = provider(env, "first", server)
    weir = Weir(env, tables=table + model("scripted", "first"))
    must(lambda: weir.chat("scripted").status == 200, 10, "the model is served")

    def reload(change):
        before = len(weir.log())
        change()
        weir.signal(signal.SIGHUP)
        must(lambda: len(weir.log()) > before, 30, "SIGHUP is logged")
        # The other lines of the reload.
        time.sleep(0.5)
        return weir.log()[before:]

    def put(text):
        with open(f"{path}.new", "w") as file:
            file.write(text)
        os.rename(f"{path}.new", path)

    figures, held = [], True
    for name, change in (("empty", lambda: put("")), ("short", lambda: put("sec")), ("missing", lambda: os.remove(path))):
        said = reload(change)
        level = next((level for level in ("ERROR", "WARN", "INFO") if f" {level} " in said), "none")
        answer, failed = weir.chat("scripted"), weir.metric("weir_config_reload_failed")
        held &= answer.status == 200 and level == "ERROR" and failed == "1" and "credential-" not in answer.text
        figures.append(f"{name}: request {answer.status}, highest line {level}, reload_failed {failed}")
        if name != "missing":
            reload(lambda: put("secret-of-a-provider"))
    reload(lambda: put("the-next-secret-of-it"))
    answer, failed = weir.chat("scripted"), weir.metric("weir_config_reload_failed")
    renewed = server.credentials[-1] == "Bearer the-next-secret-of-it"
    held &= answer.status == 200 and renewed and failed in ("0", None)
    figures.append(f"a new secret: request {answer.status}, {'in use' if renewed else 'not in use'}")
    return Outcome(held, "; ".join(figures))


def pooler(env):
    """7. PgBouncer in session mode and in transaction mode."""
    server = Postgres(env.stack, env.work)
    figures, held = [], True
    for pool_mode in ("session", "transaction"):
        server.create(pool_mode)
        url = server.pooler(pool_mode, pool_mode)
        # `SHOW` through the pooler tells the settings of the sessions that it lends to its other clients.
        shown = "SELECT current_setting('statement_timeout') || ' ' || current_setting('client_min_messages')"
        neighbour = [server.binary("psql"), "-AtXq", "-c", shown, url]

        def settings():
            return subprocess.run(neighbour, capture_output=True, text=True).stdout.strip()

        before = settings()
        weir = Weir(env, f'database_url = "{url}"', wait=False)
        took = wait_for(lambda: weir.process.has_ended() or weir.is_ready(), 60)
        if weir.process.has_ended():
            exit_status, by_name = weir.process.child.returncode, "session mode" in weir.log()
            after = settings()
            held &= pool_mode != "session" and by_name and exit_status == 1 and before == after
            figures.append(f"{pool_mode}: refused after {took:.1f} s, {'by' if by_name else 'not by'} name, settings of neighbours "
                           f"{'as before' if before == after else f'{before} became {after}'}")
            continue
        weir.key = re.search(r"inf_[-\w]+", weir.greeting())[0] if wait_for(lambda: "inf_" in weir.greeting(), 10) is not None else "none"
        chats = at_once([weir.chat] * 20) + [weir.chat() for _ in range(20)]
        ready = weir.is_ready()
        weir.stop()
        # In session mode, PgBouncer resets sessions itself.
        after = settings()
        held &= ready and all_of(chats, 200) and before == after
        figures.append(f"{pool_mode}: {'ready' if ready else 'not ready'}, 40 requests {statuses(chats)}, settings of neighbours "
                       f"{'as before' if before == after else f'{before} became {after}'}")
    return Outcome(held, "; ".join(figures))


def restored_database(env):
    """8. The database is restored from a backup, and Redis is kept."""
    server, redis = Postgres(env.stack, env.work), Redis(env.stack, env.work)
    server.create("live")

    def stores(database):
        return f'database_url = "{server.url(database)}"\nredis_url = "{redis.url}"'

    weir = Weir(env, stores("live"))
    known = weir.key_of("alice")
    first = weir.chat(key=known)
    server.copy("live", "restored")
    later = weir.key_of("bob")
    second = weir.chat(key=later)
    weir.stop()
    restored = Weir(env, stores("restored"), folder=weir.folder)
    unknown = [restored.chat(key=later), restored.get("/models", later), restored.chat(key=later)]
    answer = restored.chat(key=known)
    held = first.status == second.status == answer.status == 200 and all_of(unknown, 401)
    return Outcome(held, f"a key from after the backup: {statuses(unknown)}; one from before: {answer.status}; before the restore "
                         f"{first.status} and {second.status}")


# The format of Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{{(?:{LABEL}(?:,{LABEL})*,?)?\}})? (?:[-+0-9.eE]+|[+-]Inf|NaN)(?: -?[0-9]+)?")


def quoted_model(env):
    """9. A model's name has a quote and a backslash, and Prometheus scrapes."""
    server = Provider(env.stack)
    name = 'say "hi" \\ bye'
    tables = provider(env, "first", server)[1] + model(f"'{name}'", "first")
    weir = Weir(env, tables=tables)
    answer = weir.chat(name)
    lines = [line for line in weir.get("/metrics").text.splitlines() if line and not line.startswith("#")]
    wrong = [line for line in lines if not SAMPLE.fullmatch(line)]
    named = [line for line in lines if r"say \"hi\" \\ bye" in line]
    example = f", such as {wrong[0]}" if wrong else ""
    return Outcome(answer.status == 200 and not wrong and bool(named),
                   f"request {answer.status}; {len(wrong)} of {len(lines)} lines do not parse{example}; {len(named)} name the model")


SCENARIOS = {
    1: ("PostgreSQL fails over behind its address", postgres_failover),
    2: ("A provider hangs, a second one works", hanging_provider),
    3: ("A provider answers 500", failing_provider),
    4: ("Nobody reads the log, then SIGTERM", unread_log),
    5: ("Redis refuses writes", full_redis),
    6: ("A secret is unusable at SIGHUP", empty_secret),
    7: ("PgBouncer", pooler),
    8: ("Database restored, Redis kept", restored_database),
    9: ("A quote in a model's name", quoted_model),
    10: ("First start, and `check` in a second folder", first_start),
}


def run_all(binary, chosen, keep):
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="weir-scenarios-") as work:
        # Servers that run as another user need the way to their folders.
        os.chmod(work, 0o711)
        env = Env(binary, work)
        # The first start compiles the plugins, which the others then share.
        for number in sorted(chosen | {10}, key=lambda number: number % 10):
            _, scenario = SCENARIOS[number]
            began = time.monotonic()
            with contextlib.ExitStack() as env.stack:
                try:
                    outcome = scenario(env)
                except Exception as error:
                    traceback.print_exc()
                    outcome = Outcome(False, f"the scenario failed: {error}")
            print(f"{binary} {number}: {'held' if outcome.held else 'DID NOT HOLD'} ({time.monotonic() - began:.0f} s): {outcome.figures}",
                  file=sys.stderr, flush=True)
            outcomes[number] = outcome
        if keep:
            shutil.copytree(work, os.path.join(keep, os.path.basename(binary)), dirs_exist_ok=True,
                            ignore=lambda folder, names: [name for name in names if name in ("home", "compiled", "data", "cache", "admin.sock")])
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", help="the weir binary")
    parser.add_argument("other", nargs="?", help="a binary to compare with, such as that of an earlier release")
    parser.add_argument("--only", help="numbers of scenarios, such as 1,5")
    parser.add_argument("--keep", help="a folder for configurations and logs")
    options = parser.parse_args()
    chosen = {int(number) for number in options.only.split(",")} if options.only else set(SCENARIOS)
    binaries = [options.binary] + ([options.other] if options.other else [])
    results = [run_all(binary, chosen, options.keep) for binary in binaries]
    print("\n| | Scenario | " + " | ".join(f"`{os.path.basename(binary)}`" for binary in binaries) + " |")
    print("|---|---|" + "---|" * len(binaries))
    for number in sorted(chosen):
        cells = [("held" if outcomes[number].held else "**did not hold**") + ": " + outcomes[number].figures.replace("|", "\\|")
                 for outcomes in results]
        print(f"| {number} | {SCENARIOS[number][0]} | " + " | ".join(cells) + " |")
    return 0 if all(results[0][number].held for number in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
