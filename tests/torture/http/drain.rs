//! H4: SIGTERM with open streams, over both versions: the process ends in time, no hold remains, and every client
//! gets a proper end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tests::{EventStream, Http2, Reply, Upstream, chat};
use tokio::task::JoinSet;

use super::{client, key};
use crate::process::{Node, Stores, provider};

const STREAMS: usize = if cfg!(debug_assertions) { 60 } else { 200 };

/// Time limit of requests under way, and of the complete shutdown.
const SHUTDOWN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 30 });
const EXIT_WITHIN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 35 });

pub(crate) fn run() -> bool {
    weir::server::descriptors::raise(4 * STREAMS as u64);
    crate::runtime(2).block_on(async {
        // Some end in time, the others never.
        let (ending, endless) = (Upstream::start().await, Upstream::start().await);
        let texts = ["word "; 20];
        ending.always(Reply::chat_stream(texts).pausing(SHUTDOWN / 40));
        endless.always(Reply::chat_stream(["word "; 2]).silent_after(600));
        let tables = format!(
            "[rate_limits]\nfree = 1000000\naddress = 1000000\n\
             [limits]\nrequests_per_account = {{ free = 1000000 }}\ndrain_delay_ms = 500\nshutdown_ms = {}\n{}{}",
            SHUTDOWN.as_millis(),
            provider("ending", &ending),
            provider("endless", &endless),
        );
        let mut node = Node::new(&Stores::default(), &tables);
        node.start();
        let key = key(&node);
        let http1 = client(&node, &key);
        let http2 = Http2::connect(node.address()).await.with_key(&key);
        let mut streams = JoinSet::new();
        for n in 0..STREAMS {
            let model = if n % 4 < 2 { "ending" } else { "endless" };
            let request = chat(model, "count");
            let mut stream = match n % 2 {
                0 => http1.stream("/chat", &request).await,
                _ => http2.stream("/chat", &request).await,
            };
            assert!(stream.next().await.is_some(), "it is served");
            streams.spawn(async move { (model, end_of(stream).await) });
        }
        node.signal("TERM");
        let told = Instant::now();
        let ended = node.ended_within(2 * EXIT_WITHIN).await;
        let took = told.elapsed();
        let mut ends = BTreeMap::<_, usize>::new();
        for end in streams.join_all().await {
            *ends.entry(end).or_default() += 1;
        }
        let is_right = |(model, end): &(&str, String)| match *model {
            "ending" => end == "whole" || end == "SHUTTING_DOWN",
            _ => end == "SHUTTING_DOWN",
        };
        let all_right = ends.keys().all(is_right);
        let books = node.books().await;
        let totals = books.totals().await;
        books.close().await;
        println!(
            "H4: SIGTERM with {STREAMS} streams open, half of them over HTTP/2: exit after {took:.1?} (limit {EXIT_WITHIN:.0?}), \
             ended well: {ended:?}; {} holds open; ends: {ends:?}",
            totals.open
        );
        took <= EXIT_WITHIN && ended == Some(true) && totals.open == 0 && all_right
    })
}

/// Returns a stream's end: complete, an error code, or another.
async fn end_of(stream: EventStream) -> String {
    let events = stream.try_rest().await;
    match events.last().map(String::as_str) {
        Some("data: [DONE]") => "whole".to_owned(),
        Some(last) if last.contains("SHUTTING_DOWN") => "SHUTTING_DOWN".to_owned(),
        last => format!("{last:?}"),
    }
}
