//! `weir payments`: what the payment processor has told.

use serde_json::json;

use super::connection::{GatewayAnswer, Needs, Operated, operate, path};
use super::table::{TextTable, optional};
use crate::config::Config;
use crate::payments::admin::{PaymentEventItem, PaymentEventList};

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// List the processor's events, the last to arrive first: whom each is about, and what it came to.
    Events {
        /// Only those that are waiting, failed, applied or ignored.
        #[arg(long)]
        state: Option<String>,
        /// Only those about this user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// How many, at most 1000.
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Go on before the event of this id.
        #[arg(long, value_name = "ID")]
        before: Option<String>,
        /// Print the gateway's answer as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Have an event be applied now, or once more: what it has done already, it does not do again.
    Retry {
        /// The event, such as evt_…
        #[arg(value_name = "ID")]
        event: String,
    },
}

pub(super) async fn run(config: Config, operated: Operated<Command>) -> anyhow::Result<()> {
    let Operated { command, offline } = operated;
    let operated = operate(
        &config,
        Needs::Stores,
        offline,
        async |connection| match command {
            Command::Events {
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
            Command::Retry { event } => {
                let retry = path(&["admin", "payments", "events", &event, "retry"], &[]);
                let retried: GatewayAnswer<PaymentEventItem> =
                    connection.post(&retry, &json!({})).await?;
                println!(
                    "{} is to be applied: within a second while a gateway runs, else when one starts.",
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
        eprintln!("There are more: --before {next}");
    }
}
