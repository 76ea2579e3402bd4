//! `weir record`: exchanges of a slot's adapter, recorded from a gateway's traffic.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};
use weir_app::config::Config;
use weir_author::input::slot_name;
use weir_author::recording::RecordedResponse;
use weir_inference::recordings::routes::{ExchangeList, RecordingItem, RecordingList};
use weir_upstream::recorded::{RecordedAnswer, RecordedExchange};

use super::connection::{
    AdminConnection, GatewayAnswer, OfflineArgument, RequiredParts, operate, path,
};
use super::plugin::span;
use super::table::TextTable;

#[derive(clap::Args)]
pub(super) struct RecordArguments {
    #[command(subcommand)]
    command: RecordCommand,
    /// Print the gateway's response as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    offline: OfflineArgument,
}

#[derive(clap::Subcommand)]
enum RecordCommand {
    /// Record a share of the exchanges of a slot's adapter from now on, on all nodes.
    ///
    /// A recording contains users' prompts and responses. weir keeps it sealed for a week, and only administrators can
    /// read it. It contains no credentials, and does not identify the users. A new recording deletes the slot's last
    /// one.
    Start {
        /// The slot.
        #[arg(value_parser = slot_name)]
        slot: String,
        /// The share of exchanges to record.
        #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "1%")]
        share: f64,
        /// Length of the recording, such as 90s, 10m or 2h; a day at most.
        #[arg(long = "for", value_name = "SPAN", value_parser = span, default_value = "10m")]
        span: Duration,
        /// Maximum size of the recording, such as 64MiB; the recording then ends.
        #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64MiB")]
        most: i64,
    },
    /// End a recording immediately.
    Stop {
        /// The slot.
        #[arg(value_parser = slot_name)]
        slot: String,
    },
    /// Show recordings and their state.
    Show {
        /// The slot. Default: all slots.
        #[arg(value_parser = slot_name)]
        slot: Option<String>,
    },
    /// Write a recording into a folder, for `weir plugin check`, `try` and `compare --recordings`.
    Fetch {
        /// The slot.
        #[arg(value_parser = slot_name)]
        slot: String,
        /// The folder; weir creates it, readable by its owner only, if it does not exist.
        folder: PathBuf,
    },
    /// Delete a recording and its exchanges.
    Forget {
        /// The slot.
        #[arg(value_parser = slot_name)]
        slot: String,
    },
}

pub(super) async fn run(config: Config, arguments: RecordArguments) -> anyhow::Result<()> {
    let RecordArguments {
        command,
        json,
        offline,
    } = arguments;
    let operated = operate(
        &config,
        RequiredParts::Plugins,
        offline,
        async |connection| {
            match command {
                RecordCommand::Start {
                    slot,
                    share,
                    span,
                    most,
                } => {
                    let body =
                        json!({ "share": share, "seconds": span.as_secs(), "most_bytes": most });
                    let begun: GatewayAnswer<RecordingItem> =
                        connection.put(&of_slot(&slot, &[]), &body).await?;
                    begun.show(json, |begun| print(std::slice::from_ref(begun)));
                    if let Some(missing @ 1..) = begun.parsed.nodes_missing {
                        eprintln!(
                            "Nodes without this recording so far: {missing}; see `weir record show`."
                        );
                    }
                }
                RecordCommand::Stop { slot } => {
                    let path = of_slot(&slot, &["stop"]);
                    let ended: GatewayAnswer<RecordingItem> =
                        connection.post(&path, &json!({})).await?;
                    ended.show(json, |ended| print(std::slice::from_ref(ended)));
                }
                RecordCommand::Show { slot: Some(slot) } => {
                    let found: GatewayAnswer<RecordingItem> =
                        connection.get(&of_slot(&slot, &[])).await?;
                    found.show(json, |found| print(std::slice::from_ref(found)));
                }
                RecordCommand::Show { slot: None } => {
                    let all: GatewayAnswer<RecordingList> =
                        connection.get("/admin/recordings").await?;
                    all.show(json, |all| print(&all.recordings));
                }
                RecordCommand::Fetch { slot, folder } => {
                    let written = fetch(connection, &slot, &folder).await?;
                    match json {
                        true => println!("{}", json!({ "written": written })),
                        false => println!("Wrote {written} exchanges to {}.", folder.display()),
                    }
                }
                RecordCommand::Forget { slot } => {
                    connection.delete(&of_slot(&slot, &[])).await?;
                    match json {
                        true => println!("{}", json!({ "forgotten": slot })),
                        false => println!("Deleted the recording of {slot}."),
                    }
                }
            }
            Ok(())
        },
    );
    operated.await
}

fn of_slot(slot: &str, rest: &[&str]) -> String {
    path(&[&["admin", "recordings", slot], rest].concat(), &[])
}

/// Writes all exchanges; returns their number.
async fn fetch(connection: &AdminConnection, slot: &str, folder: &Path) -> anyhow::Result<usize> {
    weir_storage::secrets::create_private_folder(folder)?;
    let mut after = None;
    let (mut written, mut sealed) = (0, 0);
    loop {
        let path = path(
            &["admin", "recordings", slot, "exchanges"],
            &[("after", after)],
        );
        let part: GatewayAnswer<ExchangeList> = connection.get(&path).await?;
        for item in part.parsed.exchanges {
            match item.exchange {
                Some(exchange) => {
                    write(folder, &item.id, &exchange)
                        .with_context(|| format!("writing into {}", folder.display()))?;
                    written += 1;
                }
                None => sealed += 1,
            }
        }
        after = part.parsed.next;
        if after.is_none() {
            break;
        }
    }
    if sealed > 0 {
        eprintln!("{sealed} exchanges cannot be decrypted: their sealing key no longer exists.");
    }
    Ok(written)
}

fn write(folder: &Path, name: &str, exchange: &RecordedExchange) -> anyhow::Result<()> {
    ensure!(
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        "the gateway returned an invalid name of an exchange"
    );
    let request: Value = serde_json::to_value(&exchange.request)?;
    fs::write(
        folder.join(format!("{name}.json")),
        format!("{request:#}\n"),
    )?;
    for (index, answer) in exchange.answers.iter().enumerate() {
        let file = match index {
            0 => format!("{name}.http"),
            index => format!("{name}.{}.http", index + 1),
        };
        fs::write(folder.join(file), recording(answer)?.to_bytes())?;
    }
    Ok(())
}

fn recording(answer: &RecordedAnswer) -> anyhow::Result<RecordedResponse> {
    let mut headers = HeaderMap::new();
    for (name, value) in &answer.headers {
        let name = HeaderName::try_from(name.as_str());
        let value = HeaderValue::try_from(value.as_str());
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(anyhow!("the gateway returned an invalid header"));
        };
        headers.append(name, value);
    }
    Ok(RecordedResponse {
        status: StatusCode::from_u16(answer.status)?,
        headers,
        body: answer.body.clone(),
    })
}

fn print(recordings: &[RecordingItem]) {
    let mut table = TextTable::new(&[
        "SLOT",
        "STATE",
        "SHARE",
        "BEGAN",
        "UNTIL",
        "EXCHANGES",
        "KEPT",
        "AT MOST",
        "FORGOTTEN",
        "BY",
    ]);
    for recording in recordings {
        table.row([
            recording.slot.clone(),
            recording.state.clone(),
            format!("{} %", recording.share * 100.0),
            recording.begun_at.clone(),
            recording.until.clone(),
            recording.exchanges.to_string(),
            mib(recording.kept_bytes),
            mib(recording.most_bytes),
            recording.forgotten_at.clone(),
            recording.by.clone(),
        ]);
    }
    table.print();
}

fn mib(bytes: i64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').map(str::trim_end);
    percent
        .and_then(|percent| percent.parse::<f64>().ok())
        .map(|percent| percent / 100.0)
        .filter(|share| (0.0001..=1.0).contains(share))
        .ok_or_else(|| "a share is from 0.01% to 100%, such as 1%".to_owned())
}

fn size(text: &str) -> Result<i64, String> {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let sized = units.into_iter().find_map(|(unit, bytes)| {
        let number = text.strip_suffix(unit)?.trim_end().parse::<i64>().ok()?;
        number.checked_mul(bytes)
    });
    sized
        .filter(|bytes| (1..=1 << 30).contains(bytes))
        .ok_or_else(|| "a size is up to 1GiB, such as 64MiB or 500KiB".to_owned())
}
