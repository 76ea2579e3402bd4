//! Many times more requests than turns: as many are served as possible, the others are refused at once, and health
//! probes succeed. `cargo torture H5` does it for longer.

use std::time::Duration;

use tests::overload::overload;
use tests::{Gateway, Reply, Upstream, chat};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_be_served_is_served_and_the_rest_is_told_at_once() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("served").after(Duration::from_millis(200)));
    let turns = 4;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables(&format!(
            "[limits]\nconcurrent_requests = {turns}\nqueued_requests = {turns}\nconnections = 12\n\
             requests_per_upstream = 1000000\nrequests_per_slot = 1000000\n"
        ))
        .start()
        .await;
    let request = chat("scripted", "x");
    let became = overload(&gateway.client(), &request, turns, Duration::from_secs(3)).await;
    // A machine that is busy with other tests has less of everything: the row H5 requires 90 %.
    assert!(became.goodput >= 0.6 * became.peak, "{became:?}");
    let mut statuses = became.answers.keys();
    assert!(
        statuses.all(|status| [0, 200, 503].contains(status)),
        "{became:?}"
    );
    // weir closes connections without a response if too many of them arrive at once, as a stalled client's may.
    let unanswered = became.answers.get(&0).copied().unwrap_or_default();
    let all: usize = became.answers.values().sum();
    assert!(unanswered * 50 <= all, "{became:?}");
    assert!(became.answers[&503] > became.answers[&200], "{became:?}");
    assert_eq!(
        (became.without_retry_after, became.failed_probes),
        (unanswered, 0),
        "{became:?}"
    );
    assert!(became.recovered_in <= Duration::from_secs(5), "{became:?}");
}
