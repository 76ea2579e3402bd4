//! `weir payments`: webhooks of the payment processor.

use serde_json::json;
use weir_accounts::payments::admin::{PaymentEventItem, PaymentEventList};
use weir_app::config::Config;

use super::connection::{GatewayAnswer, OperatorCommand, RequiredParts, operate, path};
use super::table::{TextTable, optional};

#[derive(clap::Subcommand)]
pub(super) enum PaymentsCommand {
    /// List the processor's events, newest first, with the user and the result of each.
    Events {
        /// List only events in this state: waiting, failed, applied or ignored.
        #[arg(long)]
        state: Option<String>,
        /// List only events about this user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// Maximum number of events, up to 1000.
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Continue before the event with this id.
        #[arg(long, value_name = "ID")]
        before: Option<String>,
        /// Print the gateway's response as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Apply an event now or again. Effects that were already applied are not repeated.
    Retry {
        /// The event's id, such as evt_…
        #[arg(value_name = "ID")]
        event: String,
    },
}

pub(super) async fn run(
    config: Config,
    operated: OperatorCommand<PaymentsCommand>,
) -> anyhow::Result<()> {
    let OperatorCommand { command, offline } = operated;
    let operated = operate(
        &config,
        RequiredParts::Stores,
        offline,
        async |connection| match command {
            PaymentsCommand::Events {
                state,
                user,
                limit,
                before,
                json,
            } => {
                let query = [
                    ("state", state),
                    ("user_id", user),
                    ("limit", Some(limit.to_string())),
                    ("before", before),
                ];
                let events = path(&["admin", "payments", "events"], &query);
                connection.get(&events).await?.show(json, print);
                Ok(())
            }
            PaymentsCommand::Retry { event } => {
                let retry = path(&["admin", "payments", "events", &event, "retry"], &[]);
                let retried: GatewayAnswer<PaymentEventItem> =
                    connection.post(&retry, &json!({})).await?;
                println!(
                    "Scheduled {}: a running gateway applies it within a second, or else the next gateway at its start.",
                    retried.parsed.event_id
                );
                Ok(())
            }
        },
    );
    operated.await
}

fn print(PaymentEventList { events, next }: &PaymentEventList) {
    let mut table = TextTable::new(&[
        "EVENT", "TYPE", "HAPPENED", "USER", "STATE", "TRIED", "NEXT", "OUTCOME",
    ]);
    for event in events {
        table.row([
            event.event_id.clone(),
            event.name.clone(),
            event.created_at.clone(),
            optional(&event.user_id),
            event.state.clone(),
            event.attempts.to_string(),
            optional(&event.next_attempt_at),
            optional(
                event
                    .outcome
                    .as_ref()
                    .map_or(&event.error, |_| &event.outcome),
            ),
        ]);
    }
    table.print();
    if let Some(next) = next {
        eprintln!("More events exist: --before {next}");
    }
}
