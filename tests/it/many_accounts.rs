//! One person with ten free organisations gets no more than with one account: vouchers, guesses, rates, memory of bodies,
//! concurrent requests and creations.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::Method;
use serde_json::{Value, json};
use tests::gateway::{on_each_database, top_up};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat, patiently};
use weir_ledger::Credits;

use crate::organisations::text;

const START: &str = "2026-01-30T12:00:00Z";

/// A code that no voucher has.
const UNKNOWN: &str = "00000-00000-00000-00000-00000";

/// Creates ten organisations of a web user. Returns their ids.
async fn ten_organisations(gateway: &Gateway, user: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..10 {
        let name = json!({ "name": format!("o{number}") });
        let made = gateway.web(user).post("/organisations", &name).await;
        assert_eq!(made.status, 201, "{}", made.text());
        ids.push(text(&made.json(), "organisation_id"));
    }
    ids
}

fn acting(gateway: &Gateway, user: &str, account: &str) -> Client {
    gateway.web(user).with_header("x-weir-account", account)
}

async fn voucher(gateway: &Gateway) -> String {
    let admin = gateway.admin("root").await;
    let asked = json!({ "name": "gift", "credits": 100, "uses": 50 });
    let made = admin.post("/admin/vouchers", &asked).await;
    assert_eq!(made.status, 201, "{}", made.text());
    text(&made.json(), "code")
}

async fn redeem(client: &Client, code: &str) -> Answer {
    client
        .post("/billing/redeem", &json!({ "code": code }))
        .await
}

/// A key of a person in an account.
async fn key(gateway: &Gateway, user: &str, account: &str) -> Client {
    let made = acting(gateway, user, account)
        .post("/api-keys", &json!({}))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    gateway.stranger().with_key(&text(&made.json(), "api_key"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_redeems_a_voucher_once_for_all_accounts() {
    on_each_database(
        START,
        |builder| builder,
        async |gateway, clock| {
            let code = voucher(&gateway).await;
            let organisations = ten_organisations(&gateway, "paula").await;
            let first = redeem(&acting(&gateway, "paula", &organisations[0]), &code).await;
            assert_eq!(first.status, 200, "{}", first.text());
            let mut others: Vec<_> = (organisations[1..].iter())
                .map(|id| acting(&gateway, "paula", id))
                .collect();
            others.push(gateway.web("paula"));
            for other in &others {
                let refused = redeem(other, &code).await;
                refused.error(409, "VOUCHER_ALREADY_REDEEMED");
                let balances = other.post("/billing/sync-balance", &json!({})).await.json();
                assert_eq!(balances["topup_balance"], 0.0, "{balances}");
            }
            // Deletion gives neither the voucher nor the creation back.
            let path = format!("/organisations/{}", organisations[9]);
            assert_eq!(gateway.web("paula").delete(&path).await.status, 204);
            let name = json!({ "name": "again" });
            let again = gateway.web("paula").post("/organisations", &name).await;
            again.error(429, "ORGANISATION_LIMIT_REACHED");
            clock.advance(Duration::from_secs(86_401));
            let again = gateway.web("paula").post("/organisations", &name).await;
            assert_eq!(again.status, 201, "{}", again.text());
            let id = text(&again.json(), "organisation_id");
            let refused = redeem(&acting(&gateway, "paula", &id), &code).await;
            refused.error(409, "VOUCHER_ALREADY_REDEEMED");
            // Another person has their own use.
            assert_eq!(redeem(&gateway.web("quentin"), &code).await.status, 200);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_of_voucher_codes_count_by_person() {
    on_each_database(
        START,
        |builder| builder,
        async |gateway, _| {
            let organisations = ten_organisations(&gateway, "paula").await;
            for id in &organisations {
                let guess = redeem(&acting(&gateway, "paula", id), UNKNOWN).await;
                guess.error(404, "UNKNOWN_VOUCHER");
            }
            for client in [
                acting(&gateway, "paula", &organisations[0]),
                gateway.web("paula"),
            ] {
                let guess = redeem(&client, UNKNOWN).await;
                guess.error(429, "TOO_MANY_GUESSES");
            }
            let guess = redeem(&gateway.web("quentin"), UNKNOWN).await;
            guess.error(404, "UNKNOWN_VOUCHER");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn free_organisations_share_the_rate_of_their_creator() {
    on_each_database(
        START,
        |builder| builder.tables("[rate_limits]\nfree = 60\n"),
        async |gateway, _| {
            let organisations = ten_organisations(&gateway, "paula").await;
            let mut keys = Vec::new();
            for id in &organisations {
                keys.push(key(&gateway, "paula", id).await);
            }
            let mut served = 0;
            for _ in 0..20 {
                for key in &keys {
                    let answer = key.get("/models").await;
                    match answer.status.as_u16() {
                        200 => served += 1,
                        _ => drop(answer.error(429, "RATE_LIMITED")),
                    }
                }
            }
            // 200 requests; 20 of the minute's 60 were spent before.
            assert!((1..=60).contains(&served), "{served}");
            gateway
                .web("paula")
                .get("/models")
                .await
                .error(429, "RATE_LIMITED");
            // Paid credits give an organisation limits of its own.
            top_up(gateway.app(), &organisations[0], Credits::whole(1)).await;
            let paid = acting(&gateway, "paula", &organisations[0])
                .get("/models")
                .await;
            assert_eq!(paid.status, 200, "{}", paid.text());
            assert_eq!(gateway.web("quentin").get("/models").await.status, 200);
        },
    )
    .await;
}

/// Sends each request, and returns the first `number` responses, and then the rest after the gate has opened.
async fn responses(requests: Vec<(Client, Bytes)>, number: usize, gate: &Gate) -> [Vec<Answer>; 2] {
    let mut pending: FuturesUnordered<_> = requests
        .into_iter()
        .map(|(client, body)| async move {
            let json = Some("application/json");
            client.send(Method::POST, "/chat", json, body).await
        })
        .collect();
    let mut first = Vec::new();
    patiently(async {
        while first.len() < number {
            first.extend(pending.next().await);
        }
    })
    .await;
    gate.open();
    let rest = patiently(pending.collect::<Vec<_>>()).await;
    [first, rest]
}

/// Keys of ten organisations with a voucher's credits each, and the key of one with paid credits.
async fn keys_with_credits(gateway: &Gateway) -> (Vec<Client>, Client) {
    let organisations = ten_organisations(gateway, "paula").await;
    let mut keys = Vec::new();
    for id in &organisations {
        let redeemed = redeem(&acting(gateway, "paula", id), &voucher(gateway).await).await;
        assert_eq!(redeemed.status, 200, "{}", redeemed.text());
        keys.push(key(gateway, "paula", id).await);
    }
    let made = gateway
        .web("rita")
        .post("/organisations", &json!({ "name": "paid" }))
        .await;
    let paid = text(&made.json(), "organisation_id");
    top_up(gateway.app(), &paid, Credits::whole(100)).await;
    (keys, key(gateway, "rita", &paid).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn free_organisations_share_the_concurrent_requests_of_their_creator() {
    let upstream = Upstream::start().await;
    on_each_database(
        START,
        |builder| {
            let builder = builder.upstream("scripted", &upstream);
            builder.tables("[limits]\nrequests_per_account = { free = 3 }\n")
        },
        async |gateway, _| {
            let gate = Gate::new();
            upstream.always(Reply::chat_with_usage("fine", 10, 5).after_gate(&gate));
            let (mut keys, paid) = keys_with_credits(&gateway).await;
            keys.push(paid);
            let body = Bytes::from(chat("scripted", "x").to_string());
            let requests = keys.into_iter().map(|key| (key, body.clone())).collect();
            let [refused, served] = responses(requests, 7, &gate).await;
            for answer in &refused {
                answer.error(429, "TOO_MANY_AT_ONCE");
            }
            let statuses: Vec<_> = served.iter().map(|answer| answer.status.as_u16()).collect();
            assert_eq!(
                statuses, [200; 4],
                "three of the person's, and the paid one"
            );
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn free_organisations_share_the_memory_of_bodies_of_their_creator() {
    let upstream = Upstream::start().await;
    on_each_database(
        START,
        |builder| {
            let builder = builder.upstream("scripted", &upstream);
            builder.tables("[limits]\nbodies_per_account_mib = 1\n")
        },
        async |gateway, _| {
            let gate = Gate::new();
            upstream.always(Reply::chat_with_usage("fine", 10, 5).after_gate(&gate));
            let (mut keys, paid) = keys_with_credits(&gateway).await;
            keys.push(paid);
            let body = format!("{}{}", chat("scripted", "x"), " ".repeat(700 << 10));
            let body = Bytes::from(body);
            let requests = keys.into_iter().map(|key| (key, body.clone())).collect();
            let [refused, served] = responses(requests, 9, &gate).await;
            for answer in &refused {
                let error: Value = answer.json()["error"].clone();
                assert_eq!(answer.status, 429, "{error}");
            }
            let statuses: Vec<_> = served.iter().map(|answer| answer.status.as_u16()).collect();
            assert_eq!(statuses, [200; 2], "one of the person's, and the paid one");
        },
    )
    .await;
}
