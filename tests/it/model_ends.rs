//! The end of a model at its provider: weir warns of it, and gives swarms another model in time.

use serde_json::Value;
use tests::gateway::{Builder, at};
use tests::{Gateway, Reply, Upstream};
use weir_app::config::Config;
use weir_storage::clock::{ManualClock, Millis};

use crate::console::Browser;
use crate::operate::{fail, folder, succeed};
use crate::swarms::{agent, ended, swarm};

/// A model of the demo provider that ends on this day.
fn ending(id: &str, ends_on: &str) -> String {
    format!(
        "[models.{id}]\nends_on = {ends_on}\ncontext_window = 9\nmax_output_tokens = 9\ndefault_output_tokens = 9\n\
         upstreams = [{{ provider = \"demo\" }}]\nprice = {{ input = 1, output = 1 }}\n"
    )
}

#[test]
fn check_warns_of_models_that_end_and_the_catalog_shows_the_day() {
    let day = |days: i64| Millis::now().plus_days(days).iso()[..10].to_owned();
    let toml = [("past", -3), ("near", 59), ("far", 62)]
        .map(|(id, days)| ending(id, &format!("{:?}", day(days))))
        .concat();
    let folder = folder(&toml);
    let printed = succeed(folder.path(), &["check"]);
    let past = format!("The provider ended the model past on {}.", day(-3));
    let near = format!(
        "The provider ends the model near on {}, in 59 days.",
        day(59)
    );
    assert!(
        printed.contains(&past) && printed.contains(&near),
        "{printed}"
    );
    assert!(!printed.contains("the model far"), "{printed}");
    let listed = succeed(folder.path(), &["catalog", "--offline"]);
    assert!(
        listed.contains("ENDS") && listed.contains(&day(62)),
        "{listed}"
    );

    for wrong in ["\"2026-11-31\"", "\"soon\"", "2026"] {
        let folder = crate::operate::folder(&ending("m", wrong));
        let errors = fail(folder.path(), &["check"]);
        assert!(
            errors.contains("a date in quotes, such as") && errors.contains("models.m.ends_on"),
            "{errors}"
        );
    }
}

const DAY: &str = "2026-10-01T12:00:00Z";

/// The model `aa`, which ends on 30 November, and the model `bb`.
fn with_two_models(upstream: &Upstream, clock: &ManualClock) -> Builder {
    Gateway::builder()
        .swarms()
        .clock(clock)
        .settings("default_catalog = false")
        .upstream("aa", upstream)
        .tables("ends_on = \"2026-11-30\"\naliases = [\"aa-20260101\"]")
        .upstream("bb", upstream)
}

#[tokio::test]
async fn the_console_warns_of_models_that_end() {
    let upstream = Upstream::start().await;
    let clock = ManualClock::at(at("2026-09-30T12:00:00Z"));
    let gateway = with_two_models(&upstream, &clock).start().await;
    gateway.admin("root").await;
    let mut root = Browser::of(&gateway, "root").await;
    let page = root.page("/console/admin/models").await;
    assert!(!page.contains("The provider end"), "{page}");
    assert!(page.contains("also aa-20260101"), "{page}");
    for (now, warning) in [
        (
            DAY,
            "The provider ends the model aa on 2026-11-30, in 60 days.",
        ),
        (
            "2026-12-01T00:00:00Z",
            "The provider ended the model aa on 2026-11-30.",
        ),
    ] {
        clock.set(at(now));
        let mut root = Browser::of(&gateway, "root").await;
        let page = root.page("/console/admin/models").await;
        assert!(page.contains(warning), "{now}: {page}");
    }
    // Clients' lists do not change.
    let list = gateway.client().get("/v1/models").await.text();
    assert!(
        list.contains("\"aa\"") && !list.contains("ends_on"),
        "{list}"
    );
}

/// Returns the model of the first request of a swarm whose agent names none.
async fn default_model(builder: Builder, upstream: &Upstream) -> Value {
    let gateway = builder.start().await;
    gateway.set_plan("pro").await;
    let mut agent = agent("scout");
    agent.as_object_mut().expect("an object").remove("model");
    let client = gateway.client();
    let accepted = client.post("/swarms", &swarm(&[agent])).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.json()["execution_id"].clone();
    ended(&client, id.as_str().expect("an id")).await;
    let requests = upstream.requests();
    requests.last().expect("a request").json()["model"].clone()
}

#[tokio::test]
async fn swarms_do_not_default_to_a_model_that_ends() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let before = ManualClock::at(at("2026-09-30T12:00:00Z"));
    let two = with_two_models(&upstream, &before);
    assert_eq!(default_model(two, &upstream).await, "aa");
    for now in [DAY, "2027-01-01T00:00:00Z"] {
        let clock = ManualClock::at(at(now));
        let two = with_two_models(&upstream, &clock);
        assert_eq!(default_model(two, &upstream).await, "bb", "{now}");
        let configured = with_two_models(&upstream, &clock);
        let configured = configured.settings("swarms.default_model = \"aa\"");
        assert_eq!(default_model(configured, &upstream).await, "aa", "{now}");
        // No other model fits.
        let alone = Gateway::builder()
            .swarms()
            .clock(&clock)
            .settings("default_catalog = false")
            .upstream("aa", &upstream)
            .tables("ends_on = \"2026-11-30\"");
        assert_eq!(default_model(alone, &upstream).await, "aa", "{now}");
    }
}

#[tokio::test]
async fn the_bundled_default_of_swarms_has_no_announced_end() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::new(400));
    let builder = Gateway::builder()
        .swarms()
        .provider("anthropic", "anthropic", Some(&upstream));
    let model = default_model(builder, &upstream).await;
    assert_eq!(model, "claude-sonnet-5-5");
    let config = Config::from_toml("").expect("it fits");
    assert_eq!(config.models["claude-sonnet-5-5"].ends_on, None);
}
