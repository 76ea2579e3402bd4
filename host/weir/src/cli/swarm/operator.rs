//! `weir swarm --operator`: all users' swarms, through the admin socket.

use anyhow::bail;
use serde_json::json;
use weir_app::config::Config;
use weir_swarms::swarm::admin::{SwarmOutline, SwarmOutlineList};

use super::arguments::SwarmCommand;
use super::terminal;
use crate::cli::connection::{GatewayAnswer, OfflineArgument, RequiredParts, operate, path};
use crate::cli::table::{TextTable, optional};

pub(super) async fn run(
    config: &Config,
    offline: OfflineArgument,
    command: SwarmCommand,
) -> anyhow::Result<()> {
    let operated = operate(
        config,
        RequiredParts::Stores,
        offline,
        async |connection| match command {
            SwarmCommand::List {
                limit,
                before,
                user,
                open,
            } => {
                let query = [
                    ("limit", Some(limit.to_string())),
                    ("before", before),
                    ("user_id", user),
                    ("open", open.then(|| "true".to_owned())),
                ];
                let swarms = path(&["admin", "swarms"], &query);
                connection.get(&swarms).await?.show(false, print);
                Ok(())
            }
            SwarmCommand::Cancel { id } => {
                let cancel = path(&["admin", "swarms", &id, "cancel"], &[]);
                let cancelled: GatewayAnswer<SwarmOutline> =
                    connection.post(&cancel, &json!({})).await?;
                println!(
                    "{} of user {} ends within two seconds.",
                    cancelled.parsed.execution_id, cancelled.parsed.user_id
                );
                Ok(())
            }
            SwarmCommand::Run { .. }
            | SwarmCommand::Show { .. }
            | SwarmCommand::Resume { .. }
            | SwarmCommand::Delete { .. } => {
                bail!(
                    "--operator works only for list and cancel: operators cannot read users' texts"
                )
            }
        },
    );
    operated.await
}

fn print(SwarmOutlineList { swarms, next }: &SwarmOutlineList) {
    let mut table = TextTable::new(&[
        "ID", "USER", "SWARM", "STATUS", "AGENTS", "CREDITS", "CREATED", "ENDED",
    ]);
    for swarm in swarms {
        table.row([
            swarm.execution_id.clone(),
            swarm.user_id.clone(),
            terminal::line(&swarm.swarm_id),
            swarm.status.clone(),
            format!("{}/{}", swarm.agents_completed, swarm.agents_total),
            swarm.total_credits.to_string(),
            swarm.created_at.clone(),
            optional(&swarm.ended_at),
        ]);
    }
    table.print();
    if let Some(next) = next {
        eprintln!("More swarms exist: --before {next}");
    }
}
