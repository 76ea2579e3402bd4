//! Nodes with wrong clocks: the database's clock decides on expiry.

use std::time::Duration;

use tests::gateway::{USER, on_each_database};
use tests::stores::Postgres;
use tests::{EventStream, Gate, Gateway, Reply, Upstream, chat};
use tokio::time::Instant;
use weir_ledger::{AccountId, Action, Credits, Grant, OperationId, Period, Plan};
use weir_storage::ids;

const DAY_MS: i64 = 86_400_000;

/// Starts a stream and reads its first chunk.
async fn begun(gateway: &Gateway) -> EventStream {
    let mut stream = gateway.stream("scripted", "hello").await;
    stream.next_chunk().await;
    stream
}

async fn count(gateway: &Gateway, what: &'static str) -> i64 {
    let counted = sqlx::query_scalar(what).fetch_one(gateway.app().database.reader());
    counted.await.expect("an answer")
}

/// Puts the user on a paid plan for a month from now.
pub(crate) async fn grant_month(gateway: &Gateway) {
    let ledger = &gateway.app().ledger;
    let plan = Action::Grant(Grant {
        id: OperationId(ids::operator_action_id()),
        plan: Plan::Guru,
        period: Period::monthly(ledger.now(), ledger.now()),
        credits: Credits::whole(1_000),
    });
    let soon = Instant::now() + Duration::from_secs(10);
    let granted = ledger.submit(&AccountId(USER.into()), plan, soon).await;
    granted.expect("a plan can be granted");
}

/// Runs a node's own sweeps, without a wait.
async fn tidied(gateway: &Gateway) -> (usize, usize) {
    let ledger = &gateway.app().ledger;
    let swept = ledger.sweep().await.expect("an answer");
    let begun = ledger.begin_due_periods().await.expect("an answer");
    ledger.forget_old().await.expect("an answer");
    (swept, begun)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_is_wrong_ends_nothing_of_the_others_and_is_not_ready() {
    let url = Postgres::shared().create_database().await;
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat("kept"));
    let gateway = || {
        Gateway::builder()
            .upstream("scripted", &upstream)
            .postgres(&url)
    };
    let right = gateway().start().await;
    let keyed = right.client().with_header("idempotency-key", "key");
    assert_eq!(
        keyed.post("/chat", &chat("scripted", "x")).await.status,
        200
    );
    grant_month(&right).await;

    for (off_ms, said) in [
        (40_000, "40 s ahead of the database's"),
        (40 * DAY_MS, "3456000 s ahead of the database's"),
        (-40_000, "40 s behind the database's"),
    ] {
        let gate = Gate::new();
        upstream.always(Reply::chat_stream(["so", " far"]).gate_before_piece(1, &gate));
        let wrong = gateway()
            .clock_off_by(off_ms)
            .sharing_secrets_of(&right)
            .start()
            .await;
        let streams = [begun(&right).await, begun(&wrong).await];
        assert_eq!(tidied(&wrong).await, (0, 0), "{said}");
        assert_eq!(tidied(&right).await, (0, 0), "{said}");
        let open = "SELECT CAST(COUNT(*) AS BIGINT) FROM holds WHERE expired_at IS NULL";
        assert_eq!(count(&right, open).await, 2, "{said}");
        let keys = "SELECT CAST(COUNT(*) AS BIGINT) FROM idempotency_keys";
        assert_eq!(count(&right, keys).await, 1, "{said}");
        let plans = "SELECT CAST(COUNT(*) AS BIGINT) FROM accounts WHERE plan = 'guru'";
        assert_eq!(count(&right, plans).await, 1, "{said}");

        assert_eq!(right.stranger().get("/health/ready").await.status, 200);
        let refused = wrong.stranger().get("/health/ready").await;
        let error = refused.error(503, "NOT_READY");
        let message = error["message"].as_str().expect("a text");
        // The offset may be a moment less, or more, until the next query.
        let said = [
            said.to_owned(),
            said.replace("40 s", "39 s"),
            said.replace("6000 s", "5999 s"),
        ];
        assert!(said.iter().any(|said| message.contains(said)), "{message}");
        gate.open();
        for stream in streams {
            assert!(stream.is_whole().await);
        }
        wrong.stop().await;
    }
}

/// 40 days ahead, every paid plan is over and every lease has expired. No node may act on that before the time has
/// proved stable.
#[tokio::test(flavor = "multi_thread")]
async fn sweeps_pause_after_the_clock_has_jumped() {
    let upstream = Upstream::start().await;
    let configure = |builder: tests::gateway::Builder| builder.upstream("scripted", &upstream);
    on_each_database("2026-01-01T00:00:00Z", configure, async |gateway, clock| {
        let gate = Gate::new();
        upstream.always(Reply::chat_stream(["so", " far"]).gate_before_piece(1, &gate));
        grant_month(&gateway).await;
        let stream = begun(&gateway).await;
        assert_eq!(tidied(&gateway).await, (0, 0));
        let plans = "SELECT CAST(COUNT(*) AS BIGINT) FROM accounts WHERE plan = 'guru'";
        // Ahead, and corrected again.
        for by_ms in [40 * DAY_MS, -40 * DAY_MS] {
            clock.jump(by_ms);
            for _ in 0..3 {
                assert_eq!(tidied(&gateway).await, (0, 0), "{by_ms}");
            }
            assert_eq!(count(&gateway, plans).await, 1);
            let open = gateway.app().ledger.open_holds().await;
            assert_eq!(open.expect("a number"), 1);
        }
        gate.open();
        assert!(stream.is_whole().await);
        // A stable time is accepted.
        clock.jump(40 * DAY_MS);
        assert_eq!(tidied(&gateway).await, (0, 0));
        clock.advance(Duration::from_secs(599));
        assert_eq!(tidied(&gateway).await, (0, 0));
        clock.advance(Duration::from_secs(1));
        tidied(&gateway).await;
        assert_eq!(count(&gateway, plans).await, 0);
    })
    .await;
}
