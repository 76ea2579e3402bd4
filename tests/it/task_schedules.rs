//! Schedules of tasks: each slot fires once, on one node or two, late if no node was up, and its result is shown.

use axum::extract::FromRef as _;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::{at, on_each_database};
use tests::stores::{Postgres, each_database};
use tests::{Gateway, Reply, Upstream};
use weir_storage::Database;
use weir_storage::clock::{ManualClock, Millis};
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::SecretKey;
use weir_swarms::tasks::TaskParts;
use weir_swarms::tasks::definition::Definition;
use weir_swarms::tasks::store::{DueSchedule, NewFire, OpenStart, Task, TaskStore};
use weir_swarms::tasks::timer;

use crate::tasks::{BEGINNING, TASKS, define, definition, put, runs_swarms, show, until};

fn every_five_minutes() -> Value {
    let mut definition = definition("often");
    definition["schedule"] = json!({ "cron": "*/5 * * * *" });
    definition
}

/// Returns the fired slots, the last one first, each with its result.
fn fired(task: &Value) -> Vec<(String, String)> {
    let runs = task["runs"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    runs.map(|run| (text(&run["scheduled_for"]), text(&run["status"])))
        .collect()
}

fn have_ended(runs: &[Value], number: usize) -> bool {
    runs.len() == number && runs.iter().all(|run| run["status"] == "completed")
}

#[tokio::test]
async fn a_slot_fires_once_for_its_owner_and_not_while_the_task_is_paused() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Seen."));
    on_each_database(BEGINNING, runs_swarms(&upstream), async |gateway, clock| {
        gateway.set_plan("pro").await;
        let client = gateway.client();
        let before = upstream.count();
        let id = define(&client, &every_five_minutes()).await;
        clock.set(at("2026-03-02T12:05:00Z"));
        let task = until(&client, &id, |runs| have_ended(runs, 1)).await;
        assert_eq!(task["next_fire_at"], "2026-03-02T12:10:00Z");
        assert_eq!(task["last_run"]["trigger_type"], "schedule");
        assert_eq!(task["last_run"]["scheduled_for"], "2026-03-02T12:05:00Z");
        let run = task["last_run"]["execution_id"].as_str().expect("an id");
        let run = client.get(&format!("/swarms/{run}")).await.json();
        assert_eq!(
            (&run["task_id"], &run["content"]),
            (&json!(id), &json!("Seen."))
        );
        let path = format!("{TASKS}/{id}");
        let mut paused = every_five_minutes();
        paused["paused"] = json!(true);
        assert_eq!(
            put(&client, &path, &paused).await.json()["next_fire_at"],
            Value::Null
        );
        clock.set(at("2026-03-02T12:20:30Z"));
        // A schedule of every minute proves that schedules are polled.
        let mut other = definition("other");
        other["schedule"] = json!({ "cron": "* * * * *" });
        let other = define(&client, &other).await;
        clock.set(at("2026-03-02T12:21:00Z"));
        until(&client, &other, |runs| have_ended(runs, 1)).await;
        client.delete(&format!("{TASKS}/{other}")).await;
        assert_eq!(fired(&show(&client, &id).await).len(), 1);
        // Slots during the pause are not made up for.
        let resumed = put(&client, &path, &every_five_minutes()).await.json();
        assert_eq!(resumed["next_fire_at"], "2026-03-02T12:25:00Z");
        clock.set(at("2026-03-02T12:25:59Z"));
        let task = until(&client, &id, |runs| have_ended(runs, 2)).await;
        assert_eq!(fired(&task)[0].0, "2026-03-02T12:25:00Z");
        assert_eq!(upstream.count() - before, 3);
    })
    .await;
}

#[tokio::test]
async fn slots_that_were_missed_fire_once_late_or_are_shown_as_missed() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Seen."));
    on_each_database(BEGINNING, runs_swarms(&upstream), async |gateway, clock| {
        gateway.set_plan("pro").await;
        let client = gateway.client();
        let mut daily = definition("daily");
        daily["schedule"] = json!({ "cron": "0 13 * * *", "time_zone": "Europe/Berlin" });
        daily["paused"] = json!(true);
        let often = define(&client, &every_five_minutes()).await;
        let daily_id = define(&client, &daily).await;
        // Next at 12:00 of the next day, in UTC.
        daily["paused"] = json!(false);
        put(&client, &format!("{TASKS}/{daily_id}"), &daily).await;
        clock.set(at("2026-03-03T14:33:00Z"));
        let task = until(&client, &often, |runs| have_ended(runs, 1)).await;
        assert_eq!(fired(&task)[0].0, "2026-03-03T14:30:00Z");
        assert_eq!(task["next_fire_at"], "2026-03-03T14:35:00Z");
        let task = until(&client, &daily_id, |runs| runs.len() == 1).await;
        let last = &task["last_run"];
        assert_eq!(
            (&last["status"], &last["execution_id"]),
            (&json!("refused"), &Value::Null)
        );
        assert_eq!(last["error"]["code"], "SCHEDULE_MISSED");
        assert_eq!(last["scheduled_for"], "2026-03-03T12:00:00Z");
        assert_eq!(task["next_fire_at"], "2026-03-04T12:00:00Z");
    })
    .await;
}

#[tokio::test]
async fn a_slot_that_cannot_be_paid_is_shown_as_refused_and_the_next_one_fires() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Seen."));
    on_each_database(BEGINNING, runs_swarms(&upstream), async |gateway, clock| {
        gateway.set_plan("pro").await;
        let client = gateway.client();
        let id = define(&client, &every_five_minutes()).await;
        gateway.set_plan("free").await;
        clock.set(at("2026-03-02T12:05:00Z"));
        let task = until(&client, &id, |runs| {
            runs.iter().any(|run| run["status"] == "refused")
        })
        .await;
        assert_eq!(task["last_run"]["error"]["code"], "PLAN_NOT_ELIGIBLE");
        gateway.set_plan("pro").await;
        clock.set(at("2026-03-02T12:10:00Z"));
        let task = until(&client, &id, |runs| runs[0]["status"] == "completed").await;
        assert_eq!(fired(&task).len(), 2);
    })
    .await;
}

#[tokio::test]
async fn two_nodes_on_one_database_fire_each_slot_once() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Seen."));
    let postgres = Postgres::shared().create_database().await;
    let clock = ManualClock::at(at(BEGINNING));
    let node = || runs_swarms(&upstream)(Gateway::builder().clock(&clock).postgres(&postgres));
    let one = node().start().await;
    let other = node().sharing_secrets_of(&one).start().await;
    one.set_plan("pro").await;
    let client = one.client();
    let ids =
        join_all((0..5).map(|_| async { define(&client, &every_five_minutes()).await })).await;
    for (minute, number) in [(5, 1), (10, 2), (15, 3)] {
        clock.set(at(&format!("2026-03-02T12:{minute:02}:00Z")));
        for id in &ids {
            until(&other.client(), id, |runs| have_ended(runs, number)).await;
        }
    }
    assert_eq!(upstream.count(), 15);
    for id in &ids {
        let slots: Vec<_> = fired(&show(&client, id).await)
            .into_iter()
            .map(|(slot, _)| slot)
            .collect();
        assert_eq!(
            slots,
            [
                "2026-03-02T12:15:00Z",
                "2026-03-02T12:10:00Z",
                "2026-03-02T12:05:00Z"
            ]
        );
    }
}

#[tokio::test]
async fn a_slot_whose_node_is_gone_is_started_by_another_one_once() {
    let upstream = Upstream::start().await;
    let clock = ManualClock::at(at(BEGINNING));
    let gateway = Gateway::builder()
        .clock(&clock)
        .upstream("scripted", &upstream)
        .start()
        .await;
    gateway.set_plan("pro").await;
    let client = gateway.client();
    let id = define(&client, &every_five_minutes()).await;
    let store = &gateway.app().task_store;
    let now = at("2026-03-02T12:05:00Z");
    clock.set(now);
    let due = store.due(now).await.expect("an answer");
    let start = OpenStart {
        task_id: id.clone(),
        cause: "slot 2026-03-02T12:05:00Z".to_owned(),
        slot: now,
        claimed_until: Millis(now.0 + 30_000),
    };
    let fire = NewFire {
        due: &due[0],
        next: Some(at("2026-03-02T12:10:00Z")),
        start: &start,
        at: now,
        missed: None,
    };
    assert!(store.claim_slot(&fire).await.expect("an answer"));
    assert_eq!(fired(&show(&client, &id).await)[0].1, "starting");
    clock.set(at("2026-03-02T12:05:31Z"));
    let open = store
        .open_starts(at("2026-03-02T12:05:31Z"))
        .await
        .expect("an answer");
    assert_eq!(open, [start]);
    // Two nodes sweep for leftovers.
    let look = || {
        let tasks = TaskParts::from_ref(gateway.app());
        tokio::spawn(async move { timer::run(&tasks).await })
    };
    let lookers = [look(), look()];
    let task = until(&client, &id, |runs| runs[0]["status"] == "queued").await;
    assert_eq!(fired(&task).len(), 1);
    let swarms = client.get("/swarms").await.json();
    assert_eq!(swarms["swarms"].as_array().map(Vec::len), Some(1));
    lookers.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A store with a task of alice's that is due.
async fn store_with_task(database: &Database) -> (TaskStore, DueSchedule) {
    sqlx::query("INSERT INTO users (id, created_at) VALUES ('alice', 1)")
        .execute(database.writer())
        .await
        .expect("the database answers");
    let store = TaskStore::new(
        database.clone(),
        KeyRing::of([(1, SecretKey::new([1; 32]))]),
    );
    let due = DueSchedule {
        task_id: "task_1".to_owned(),
        at: Millis(1),
    };
    let task = Task {
        id: due.task_id.clone(),
        user_id: "alice".to_owned(),
        parts: Vec::new(),
        definition: Definition::read(definition("t").to_string().as_bytes()).expect("it is sound"),
        next_fire_at: Some(due.at),
        created_at: Millis(0),
        updated_at: Millis(0),
    };
    assert!(store.create(&task).await.expect("the database answers"));
    (store, due)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_nodes_that_race_for_a_slot_one_has_it() {
    each_database(async |stores| {
        let (store, mut due) = store_with_task(&stores.database).await;
        for slot in 1..=50 {
            let start = OpenStart {
                task_id: due.task_id.clone(),
                cause: format!("slot {slot}"),
                slot: Millis(slot),
                claimed_until: Millis(slot),
            };
            let next = Millis(slot + 1);
            let fire = NewFire {
                due: &due,
                next: Some(next),
                start: &start,
                at: Millis(slot),
                missed: None,
            };
            let races = join_all((0..4).map(|_| store.claim_slot(&fire))).await;
            let won = races
                .into_iter()
                .filter(|won| *won.as_ref().expect("an answer"));
            assert_eq!(won.count(), 1, "slot {slot}");
            let until = Millis(1_000_000);
            let open = join_all((0..4).map(|_| store.claim_open(&start, until))).await;
            let taken = open
                .into_iter()
                .filter(|taken| *taken.as_ref().expect("an answer"));
            assert_eq!(taken.count(), 1, "slot {slot}");
            due.at = next;
        }
        // A slot that has fired does not fire again, even if the schedule was set back to it.
        let back = store
            .find("task_1")
            .await
            .expect("an answer")
            .expect("a task");
        let again = Task {
            next_fire_at: Some(Millis(7)),
            ..back
        };
        store.replace(&again).await.expect("an answer");
        due.at = Millis(7);
        let start = OpenStart {
            task_id: due.task_id.clone(),
            cause: "another word for slot 7".to_owned(),
            slot: Millis(7),
            claimed_until: Millis(7),
        };
        let fire = NewFire {
            due: &due,
            next: None,
            start: &start,
            at: Millis(8),
            missed: None,
        };
        assert!(!store.claim_slot(&fire).await.expect("an answer"));
    })
    .await;
}

#[tokio::test]
async fn what_looks_for_schedules_goes_on_behind_one_that_cannot_be_read() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Seen."));
    on_each_database(BEGINNING, runs_swarms(&upstream), async |gateway, clock| {
        gateway.set_plan("pro").await;
        let client = gateway.client();
        let broken = define(&client, &every_five_minutes()).await;
        let sound = define(&client, &every_five_minutes()).await;
        let database = &gateway.app().database;
        let text = "UPDATE tasks SET definition = $1 WHERE id = $2";
        let query = sqlx::query(text).bind(b"nonsense".to_vec()).bind(&*broken);
        query.execute(database.writer()).await.expect("an answer");
        clock.set(at("2026-03-02T12:05:00Z"));
        until(&client, &sound, |runs| have_ended(runs, 1)).await;
        let moved = patiently(async {
            loop {
                let read = "SELECT next_fire_at FROM tasks WHERE id = $1";
                let read = sqlx::query_scalar::<_, i64>(read).bind(&*broken);
                let at_ms = read.fetch_one(database.reader()).await.expect("an answer");
                if at_ms > at("2026-03-02T12:05:00Z").0 {
                    return at_ms;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert_eq!(Millis(moved.await).iso(), "2026-03-02T12:15:00Z");
    })
    .await;
}
