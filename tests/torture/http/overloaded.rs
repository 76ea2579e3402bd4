//! H5: five times as many requests as can be served.

use std::time::Duration;

use tests::overload::overload;
use tests::{Reply, Upstream, chat};

use super::{client, key};
use crate::process::{Node, Stores, provider};

const WINDOW: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 60 });

/// Concurrently served requests, and the duration of each.
const TURNS: usize = if cfg!(debug_assertions) { 8 } else { 64 };
const EACH_TAKES: Duration = Duration::from_millis(250);

const GOODPUT: f64 = 0.9;
const RECOVERED_WITHIN: Duration = Duration::from_secs(5);
const PROBED_WITHIN: Duration = Duration::from_secs(1);

pub(crate) fn run() -> bool {
    weir::server::descriptors::raise(16_384);
    crate::runtime(2).block_on(async {
        let upstream = Upstream::start().await;
        upstream.always(Reply::chat("served").after(EACH_TAKES));
        let tables = format!(
            "[rate_limits]\nfree = 1000000\naddress = 1000000\n\
             [limits]\nconcurrent_requests = {TURNS}\nqueued_requests = {TURNS}\nconnections = {}\n\
             requests_per_account = {{ free = 1000000 }}\nrequests_per_upstream = 1000000\n\
             requests_per_slot = 1000000\n{}",
            3 * TURNS,
            provider("slow", &upstream),
        );
        let mut node = Node::new(&Stores::default(), &tables);
        node.start();
        let became = overload(&client(&node, &key(&node)), &chat("slow", "x"), TURNS, WINDOW).await;
        let sound = node.is_sound();
        println!(
            "H5: {:.0} requests a second for {WINDOW:.0?} where {:.0} can be served: {:.0} are served, {:.0} % (limit {:.0} %); \
             answers {:?}, {} refusals without Retry-After, the slowest in {:.0?}; health asked meanwhile: the slowest answer in \
             {:.0?} (limit {PROBED_WITHIN:.0?}), {} failed; recovered in {:.1?} (limit {RECOVERED_WITHIN:.0?}); the ledger is \
             sound: {sound}",
            became.offered,
            became.peak,
            became.goodput,
            100.0 * became.goodput / became.peak,
            100.0 * GOODPUT,
            became.answers,
            became.without_retry_after,
            became.slowest_refusal,
            became.slowest_probe,
            became.failed_probes,
            became.recovered_in,
        );
        became.goodput >= GOODPUT * became.peak
            && became.answers.keys().all(|status| [200, 503].contains(status))
            && became.without_retry_after + became.failed_probes == 0
            && became.slowest_probe <= PROBED_WITHIN
            && became.recovered_in <= RECOVERED_WITHIN
            && sound
    })
}
