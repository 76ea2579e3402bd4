//! The instructions of a request through weir, compared with a bare proxy, by the groups of code that execute them.
//!
//! Processor time on a shared machine varies by a tenth and more, and a change of 3 % gets lost in it. Counts of
//! instructions vary less, even on a busy machine. Valgrind's callgrind counts them, and simulates the first
//! caches of instructions and data. It does not count the kernel's.
//!
//! Servers and loads are those of the bench `gateway`, and an agent's prompt. An idle run of equal length is subtracted from
//! each run, since valgrind slows requests down about fifty times, but no timer.
//!
//! `cargo bench -p tests --bench instructions` prints a table for each load, and fails if a request exceeds its limit;
//! `-- --json` prints JSON. `-- --only paced` measures only the loads with this in their names. The profiles remain in
//! `target/callgrind`, for `callgrind_annotate`.
//!
//! The measured program is the profile `release` with line tables. `-- --beside target/optimized/weir` measures another one,
//! too, and prints its total beside: a better compiler is not a better program.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its figures, and ends by panicking"
)]

mod callgrind;
mod loads;

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use callgrind::{Callgrind, Costs, Events, Group, Observed};
use loads::{
    CORE, Clients, LOADS, Load, OTHER_CORE, PATH, Process, Requests, create_keys, on_core, option,
    pin, play_role, runtime, serve, write_settings,
};
use serde_json::{Value, json};
use tests::program::build_weir;

/// Instructions of a request through weir at the last measurement, with each number of [`CONNECTIONS`]. To accept a change,
/// write the new figures here.
const MEASURED: [(&str, [f64; 2]); 5] = [
    ("plain, 1 KiB", [585_447.0, 535_894.0]),
    ("plain, 16 KiB prompt", [614_584.0, 625_009.0]),
    (
        "burst stream, 100 chunks at once",
        [2_585_776.0, 2_543_472.0],
    ),
    (
        "paced stream, a chunk each 2 ms",
        [2_825_054.0, 2_594_295.0],
    ),
    ("agent, 100 KiB prompt", [5_028_599.0, 5_006_098.0]),
];

/// The limit, as a multiple of the last measurement.
const MARGIN: f64 = 1.03;

/// Concurrent connections.
const CONNECTIONS: [usize; 2] = [4, 16];

/// Requests before a measurement, without counts and with them: callgrind's caches are empty when counting begins.
const WARM_UP: usize = 100;
const COUNTED_WARM_UP: usize = 32;

/// Requests of a measurement.
const REQUESTS: usize = 352;

/// The costs of a request.
struct Figures {
    groups: Costs,
    total: Events,
    /// Instructions of the subtracted idle run, for each request.
    idle: f64,
}

/// A measured server.
struct Server<'a> {
    address: SocketAddr,
    /// Otherwise it is the proxy.
    is_weir: bool,
    keys: &'a [String],
    observed: Observed<'a>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    play_role(&arguments);
    let as_json = arguments.iter().any(|argument| argument == "--json");
    let only = option(&arguments, "--only").unwrap_or_default();
    let loads = LOADS.into_iter().filter(|load| load.name.contains(only));

    let program = build_weir("measured");
    let beside = option(&arguments, "--beside").map(Path::new);
    pin(&std::process::id().to_string(), OTHER_CORE);
    let target = program.ancestors().nth(2).unwrap();
    let callgrind = Callgrind::install(target.join("callgrind"));
    let runtime = runtime();
    let (_upstream, upstream) = Process::role(&on_core(OTHER_CORE), "upstream", "-");
    let launcher = callgrind.launcher(on_core(CORE), "proxy");
    let (proxy, proxy_address) = Process::role(&launcher, "proxy", &upstream.to_string());
    let folder = tempfile::tempdir().unwrap();
    let start = |program: &Path, name: &'static str| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        write_settings(&folder, upstream, "", 2 * CONNECTIONS[1]);
        // This start compiles the plugins, which would take minutes in valgrind.
        let (first_start, _) = serve(&on_core(CORE), program, &folder);
        let keys = runtime.block_on(create_keys(&folder, 1));
        drop(first_start);
        let launcher = callgrind.launcher(on_core(CORE), name);
        let (process, address) = serve(&launcher, program, &folder);
        (process, address, keys, name)
    };
    let programs = [
        Some((program.as_path(), "weir")),
        beside.map(|program| (program, "beside")),
    ];
    let started: Vec<_> = programs
        .into_iter()
        .flatten()
        .map(|(program, name)| start(program, name))
        .collect();
    let mut weirs: Vec<_> = started
        .iter()
        .map(|(process, address, keys, name)| Server {
            address: *address,
            is_weir: true,
            keys,
            observed: callgrind.observe(process, name),
        })
        .collect();
    let mut floor = Server {
        address: proxy_address,
        is_weir: false,
        keys: weirs[0].keys,
        observed: callgrind.observe(&proxy, "proxy"),
    };

    let mut sound = true;
    let mut rows = Vec::new();
    for load in loads {
        for connections in CONNECTIONS {
            let measure =
                |server: &mut Server<'_>| runtime.block_on(measure(server, load, connections));
            let floor = measure(&mut floor);
            let mut measured = weirs.iter_mut().map(measure);
            let own = measured.next().expect("weir is measured");
            let beside = measured.next().map(|figures| figures.total);
            let limit = limit(load, connections);
            sound &= own.total.instructions <= limit;
            if as_json {
                rows.push(json!({
                    "load": load.name, "connections": connections, "limit": limit, "weir": shown(&own),
                    "floor": shown(&floor), "beside": beside.map(|total| total.instructions),
                }));
            } else {
                print(load, connections, limit, &own, &floor);
                if let Some(total) = beside {
                    println!(
                        "beside: {:.0} instructions, {:.1} × the floor's\n",
                        total.instructions,
                        total.instructions / floor.total.instructions
                    );
                }
            }
        }
    }
    if as_json {
        println!("{}", json!({ "loads": rows }));
    }
    match sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn limit(load: Load, connections: usize) -> f64 {
    let (_, measured) = MEASURED
        .into_iter()
        .find(|(name, _)| *name == load.name)
        .unwrap();
    let column = CONNECTIONS
        .into_iter()
        .position(|column| column == connections)
        .unwrap();
    measured[column] * MARGIN
}

/// Measures requests, and then as much time without requests.
async fn measure(server: &mut Server<'_>, load: Load, connections: usize) -> Figures {
    let path = match server.is_weir {
        true => PATH.to_owned(),
        false => format!("/{}{PATH}", load.model),
    };
    let requests = Requests::new(server.address, &path, server.keys, load);
    let mut clients = Clients::connect(requests.address, connections).await;
    send(&mut clients, &requests, WARM_UP).await;
    server.observed.count();
    send(&mut clients, &requests, COUNTED_WARM_UP).await;
    server.observed.reset();
    let began = Instant::now();
    send(&mut clients, &requests, REQUESTS).await;
    let run = format!("{}-{connections}", load.name.replace([' ', ','], "-"));
    let busy = server.observed.take(&run);
    let took = began.elapsed();
    server.observed.reset();
    tokio::time::sleep(took).await;
    let idle = server.observed.take("idle");
    server.observed.ignore();
    let mut groups = Costs::new();
    let (mut total, mut of_idle) = (Events::default(), 0.0);
    for group in Group::ALL {
        let get = |costs: &Costs| costs.get(&group).copied().unwrap_or_default();
        let own = (get(&busy) - get(&idle)).map(|count| count / REQUESTS as f64);
        of_idle += get(&idle).instructions / REQUESTS as f64;
        total += own;
        groups.insert(group, own);
    }
    Figures {
        groups,
        total,
        idle: of_idle,
    }
}

/// Sends this many requests.
async fn send(clients: &mut Clients, requests: &Requests<'_>, count: usize) {
    let left = Cell::new(count);
    let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
    clients.send(requests, goes_on, |_, _| {}).await;
}

fn print(load: Load, connections: usize, limit: f64, own: &Figures, floor: &Figures) {
    println!("{}, {connections} connections", load.name);
    println!(
        "{:<12} {:>12} {:>10} {:>16} {:>14} {:>10} {:>16}",
        "a request",
        "instructions",
        "I1 misses",
        "D1 write misses",
        "the floor's",
        "I1 misses",
        "D1 write misses"
    );
    let row = |name: &str, own: Events, floor: Events| {
        println!(
            "{name:<12} {:>12.0} {:>10.0} {:>16.0} {:>14.0} {:>10.0} {:>16.0}",
            own.instructions,
            own.i1_misses,
            own.d1_write_misses,
            floor.instructions,
            floor.i1_misses,
            floor.d1_write_misses
        );
    };
    for group in Group::ALL {
        row(group.name(), own.groups[&group], floor.groups[&group]);
    }
    row("total", own.total, floor.total);
    println!(
        "limit {limit:.0} instructions, {:.1} × the floor's; idle (subtracted): {:.0}, the floor's {:.0}\n",
        own.total.instructions / floor.total.instructions,
        own.idle,
        floor.idle
    );
}

fn shown(figures: &Figures) -> Value {
    let events = |events: &Events| {
        json!({
            "instructions": events.instructions, "i1_misses": events.i1_misses,
            "d1_write_misses": events.d1_write_misses,
        })
    };
    let groups: serde_json::Map<_, _> = figures
        .groups
        .iter()
        .map(|(group, costs)| (group.name().to_owned(), events(costs)))
        .collect();
    json!({ "total": events(&figures.total), "groups": groups, "idle_instructions": figures.idle })
}
