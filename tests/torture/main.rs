//! `cargo torture ROW`: tests that take too long for the gate.
//!
//! Each row prints one line with its figure, and the program fails if a row misses its limit. Without an argument it
//! lists the rows. To add a row, add a module with an async `run` and a line in [`ROWS`].

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a row prints its figure"
)]

mod cap_race;
mod charges;
mod clocks;
mod contained;
mod crash;
mod cut;
mod decoders;
mod disconnect;
mod disk;
mod drops;
mod failover;
mod frozen;
mod http;
mod kinds;
mod ledger;
mod links;
mod load;
mod lockout;
mod money;
mod month;
mod neighbours;
mod nodes;
mod postgres;
mod process;
mod readers;
mod redis;
mod rotations;
mod shares;
mod sizes;
mod soak;
mod speed;
mod strangers;
mod swaps;
mod swarms;
mod upgrade;
mod webhooks;
mod wipe;

use std::process::ExitCode;

const ROWS: [(&str, &str); 50] = [
    (
        "W-A",
        "twenty kinds of hostile guests against one gateway: each ends alone, and leaves no memory behind",
    ),
    (
        "W-B",
        "healthy requests at 50/s beside hostile ones, and beside more guests that loop than there are threads",
    ),
    (
        "W-C",
        "how late guests that loop are cut, by the clock and in processor time",
    ),
    (
        "W-D",
        "calls dropped at 1,000 random points, and 1,000 clients that hang up: no panic, and no slot of the pool is lost",
    ),
    (
        "W-E",
        "an adapter replaced 1,000 times, each time as a canary first, behind a filter, under 32 connections: nothing fails, memory stays, and bad components are refused",
    ),
    (
        "F1",
        "each adapter's decoder on recorded answers that are broken, 10 minutes each: no trap, no hang, memory is bounded",
    ),
    (
        "L1",
        "the ledger against an oracle: a million random operations on SQLite and PostgreSQL",
    ),
    (
        "L2",
        "the ledger's committer against a store that crashes, loses answers and repeats: 10,000 seeds",
    ),
    (
        "L3",
        "1,000 requests at once on a balance for 50, over two processes: 50 are admitted, and 50 reach the upstream",
    ),
    (
        "L4",
        "weir killed 200 times under load: every answer is charged, and no hold outlives its lease by more than a sweep",
    ),
    (
        "L6",
        "PostgreSQL crashes 20 times under load: no charge is lost that a client was told of",
    ),
    (
        "R1",
        "PostgreSQL under three nodes fails over, its primary killed, frozen, cut off and demoted, and Redis is lost: no charge is \
         lost, and all is served again in 10 s, after Redis in 3 s",
    ),
    (
        "R2",
        "nodes of an earlier release are replaced by new ones, and those by others, 20 times under load: no request fails, and no node \
         appends to the ledger's log beside an earlier one (WEIR_TORTURE_BINARIES=OLD:NEW)",
    ),
    (
        "R3",
        "what a request costs and how many are served on one, two and three nodes, near PostgreSQL and 2 ms from it, and on a slower \
         disk; and beside an open snapshot",
    ),
    (
        "R4",
        "one account with credits for so many requests on three nodes, 200 connections: no node waits, and nothing is overspent",
    ),
    (
        "R5",
        "budgets, plans and refunds change while a node with the account's credits is stopped: not a micro-credit too much is spent",
    ),
    (
        "R6",
        "what a request costs beside a hundred thousand accounts and a million entries, and if each account sends one a minute",
    ),
    (
        "A3",
        "who fails to prove themselves is shut out, whatever they forge, nobody who is known is, and memory is bounded",
    ),
    (
        "L7",
        "Redis killed and stopped under load: 503 at once, nothing asked upstream, and back when it is",
    ),
    (
        "L8",
        "the payment processor's events, 5 times each in 1,000 shuffled orders, 20 at once: they always come to the same",
    ),
    (
        "L9",
        "the cache emptied over 200 open holds: nothing is overspent, and nothing refused reaches the upstream",
    ),
    (
        "L10",
        "clients that hang up, at four points 250 times each: all are charged, by usage or by an estimate",
    ),
    (
        "L12",
        "a node frozen 100 times past its lease while another serves the same keys: nothing is served or charged twice",
    ),
    (
        "N1",
        "one free key sends everything whose size it controls, to have an adapter put into quarantine: nobody notices",
    ),
    (
        "N5",
        "one free key sends prompts of 9 MB at its rate limit, to use up guests' memory and time: nobody notices",
    ),
    (
        "N4",
        "strangers try to shut others out: bad keys and expired tokens from their address, 250,000 addresses",
    ),
    (
        "N6",
        "strangers, and users beyond their rate, try to fill the log, the audit events and the disk",
    ),
    (
        "L11",
        "two nodes on one PostgreSQL, the clock of one wrong: nothing of the other's expires, lapses or is forgotten",
    ),
    (
        "L13",
        "the disk full for 30 s under load: no answer without its charge, not ready meanwhile, and back within 5 s",
    ),
    (
        "E2",
        "sealing keys replaced three times on two nodes while sessions go on: none is lost, and none opens whose key is gone",
    ),
    (
        "N2",
        "1,100 requests at once of one free key, to a model that answers slowly and to an upstream that stalls, beside another user's",
    ),
    (
        "N3",
        "80 bodies that drip, 4,000 connections that say nothing, heads that drip, beside another user's requests",
    ),
    (
        "H1",
        "500 connections that say a byte now and then, in a head, a body, between requests, in HTTP/2: all closed in time, \
         and nobody notices",
    ),
    (
        "H2",
        "heads and bodies beyond every limit, resets and frames without an end, in both versions: the right answer, and \
         memory stays",
    ),
    (
        "H3",
        "100 clients that read their streams a KiB a second: 256 KiB each, cut at the write time-out, and charged",
    ),
    (
        "H4",
        "SIGTERM with 200 streams open, over both versions: it ends in 35 s, nothing is held, and clients hear of the end alone",
    ),
    (
        "H5",
        "five times as many requests for 60 s as can be served: as many are served, the others hear so, health is answered",
    ),
    (
        "H6",
        "the network to providers, PostgreSQL and Redis slow, lossy, cut and silent in turn: nothing is lost or charged twice, \
         and all is served again in 5 s",
    ),
    (
        "I11",
        "weir killed 100 times between an auto top-up's charge and its credits: no card is charged twice, and none for nothing",
    ),
    (
        "MONTH",
        "1,000 users buy, upgrade, cancel, do not pay and get money back in ten weeks: each has what a model of its own has",
    ),
    (
        "X1",
        "an executor killed at 100 random points of swarms with tools: all complete, and nothing is done or charged twice",
    ),
    (
        "X2",
        "an executor frozen past its lease at 30 random points of swarms: once awake, it writes and calls nothing more",
    ),
    (
        "X3",
        "1,000 races of two executors for a lapsed lease: one has it each time, and the one before writes nothing",
    ),
    (
        "X4",
        "the database restarted while a swarm is taken up again, the API killed in a call, a crash right behind the 202: \
         nothing is stranded, or charged twice",
    ),
    (
        "X6",
        "200 swarms of 10 users on 4 executors: while all wait, each user's share is within 20 % of even",
    ),
    (
        "X7",
        "nodes that stop in an orderly way, or are killed, while models are at work on calls of swarms: each swarm completes after \
         the restart, and each call is charged once",
    ),
    (
        "X9",
        "1,000 handovers of swarms with a model call under way, on each database: each swarm costs no more than its budget, \
         and no less than without a handover",
    ),
    (
        "T1",
        "each reader of strangers' bytes with 16 and 32 MiB that a careless reader takes quadratic time for",
    ),
    (
        "SOAK",
        "half an hour at 70 % of what can be served, with swaps, keys, hang-ups, swarms and payments: nothing fails or is left \
         behind, and memory stays",
    ),
    (
        "SPEED",
        "what a request costs beside a bare proxy, as `cargo bench -p tests --bench gateway` measures it, on SQLite and on \
         PostgreSQL with Redis",
    ),
];

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.is_empty() {
        println!("usage: cargo torture ROW …; the rows:");
        for (row, what) in ROWS {
            println!("  {row}: {what}");
        }
        return ExitCode::SUCCESS;
    }
    let mut sound = true;
    for row in wanted {
        sound &= match &*row {
            "W-A" => contained::run(),
            "W-B" => neighbours::run(),
            "W-C" => cut::run(),
            "W-D" => drops::run(),
            "W-E" => swaps::run(),
            "F1" => decoders::run(),
            "L1" => ledger::model(),
            "L2" => ledger::simulation(),
            "L3" => cap_race::run(),
            "L4" => crash::run(),
            "L6" => postgres::run(),
            "R1" => failover::run(),
            "R2" => upgrade::run(),
            "R3" => nodes::scale::run(),
            "R4" => nodes::hot::run(),
            "R5" => nodes::silent::run(),
            "R6" => nodes::size::run(),
            "A3" => lockout::run(),
            "L7" => redis::run(),
            "L8" => webhooks::run(),
            "L9" => wipe::run(),
            "L10" => disconnect::run(),
            "N1" => sizes::quarantine(),
            "N5" => sizes::appetite(),
            "L12" => frozen::run(),
            "N2" => shares::turns(),
            "N3" => shares::bodies_and_connections(),
            "N4" => strangers::shut_out(),
            "N6" => strangers::fill(),
            "L11" => clocks::run(),
            "L13" => disk::run(),
            "E2" => rotations::run(),
            "H1" => http::slowloris::run(),
            "H2" => http::limits::run(),
            "H3" => http::slow_readers::run(),
            "H4" => http::drain::run(),
            "H5" => http::overloaded::run(),
            "H6" => links::run(),
            "I11" => charges::run(),
            "MONTH" => month::run(),
            "X1" => swarms::kills::run(),
            "X2" => swarms::zombies::run(),
            "X3" => swarms::races::run(),
            "X4" => swarms::outages::run(),
            "X6" => swarms::turns::run(),
            "X7" => swarms::stops::run(),
            "X9" => swarms::handovers::run(),
            "T1" => readers::run(),
            "SOAK" => soak::run(),
            "SPEED" => speed::run(),
            _ => {
                eprintln!("there is no row {row:?}");
                false
            }
        };
    }
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Returns the repetitions of a row: its own number, or `WEIR_TORTURE_ROUNDS`.
fn rounds(by_default: u32) -> u32 {
    let rounds = std::env::var("WEIR_TORTURE_ROUNDS").ok();
    rounds.map_or(by_default, |rounds| rounds.parse().expect("a number"))
}

/// A runtime with this many worker threads.
fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime starts")
}

/// Returns this process's resident memory in MiB.
fn resident_mib() -> usize {
    resident_kib("self") >> 10
}

/// Returns a process's resident memory in KiB, by its id.
fn resident_kib(process: &str) -> usize {
    let statistics = std::fs::read_to_string(format!("/proc/{process}/statm"));
    let statistics = statistics.expect("Linux has it");
    let pages = statistics.split(' ').nth(1).expect("seven numbers");
    pages.parse::<usize>().expect("a number") * 4
}
