//! `weir audit`: security events.

use weir_app::config::Config;
use weir_console::admin::events::AuditList;

use super::connection::{OfflineArgument, RequiredParts, operate, path};
use super::table::{TextTable, optional};

#[derive(clap::Args)]
pub(super) struct AuditArguments {
    /// List only events of this kind, such as api_key.created, user.disabled or authentication.failed.
    #[arg(long)]
    kind: Option<String>,
    /// List only events about this user.
    #[arg(long, value_name = "ID")]
    user: Option<String>,
    /// List only events by this actor: user:ID, service:E-MAIL, issuer:URL, or local:UID for commands.
    #[arg(long, value_name = "WHO")]
    by: Option<String>,
    /// Maximum number of events, up to 1000.
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Continue before the event with this number.
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    /// Print the gateway's response as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    offline: OfflineArgument,
}

pub(super) async fn run(config: Config, arguments: AuditArguments) -> anyhow::Result<()> {
    let query = [
        ("kind", arguments.kind),
        ("user_id", arguments.user),
        ("actor", arguments.by),
        ("limit", Some(arguments.limit.to_string())),
        ("before", arguments.before.map(|number| number.to_string())),
    ];
    let operated = operate(
        &config,
        RequiredParts::Stores,
        arguments.offline,
        async |connection| {
            let events = connection.get(&path(&["admin", "audit"], &query)).await?;
            events.show(arguments.json, print);
            Ok(())
        },
    );
    operated.await
}

fn print(AuditList { events, next }: &AuditList) {
    let mut table = TextTable::new(&["AT", "TIMES", "WHAT", "USER", "KEY", "WHO", "HOW", "DETAIL"]);
    for event in events {
        table.row([
            event.at.clone(),
            event.count.to_string(),
            event.kind.clone(),
            optional(&event.user_id),
            optional(&event.key_id),
            optional(&event.actor),
            optional(&event.method),
            optional(&event.reason),
        ]);
    }
    table.print();
    if let Some(next) = next {
        eprintln!("More events exist: --before {next}");
    }
}
