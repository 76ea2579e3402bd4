//! `weir swarm`: a user's swarms, at any gateway, with the user's key.
//!
//! **Invariant:** text from a model, a tool or another user never controls the terminal: see [`terminal`].

mod arguments;
mod client;
mod follow;
mod operator;
mod terminal;
mod view;

use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use weir_app::config::Config;

pub(super) use self::arguments::SwarmArguments;

use self::arguments::SwarmCommand;
use self::client::SwarmClient;
use super::connection::path;
use super::table::TextTable;

pub(super) async fn run(config: Config, arguments: SwarmArguments) -> anyhow::Result<()> {
    if arguments.gateway.operator {
        return operator::run(&config, arguments.gateway.offline, arguments.command).await;
    }
    let caller = SwarmClient::new(&config, arguments.gateway).await?;
    match arguments.command {
        SwarmCommand::Run {
            file,
            template,
            context,
        } => {
            let mut swarm = match (file, template) {
                (Some(file), _) => read(&file)?,
                (None, Some(name)) => caller.template(&name).await?,
                (None, None) => bail!("name a file or a template with --template"),
            };
            if let Some(context) = context {
                swarm["context"] = json!(context);
            }
            follow::run(&caller, &swarm).await
        }
        SwarmCommand::List {
            limit,
            before,
            user,
            open,
        } => {
            if user.is_some() || open {
                bail!("--user and --open require --operator");
            }
            let query = [("limit", Some(limit.to_string())), ("before", before)];
            let list = caller.get(&path(&["swarms"], &query)).await?;
            print_list(&list);
            if let Some(next) = list["next"].as_str() {
                eprintln!("More swarms exist: --before {}", terminal::line(next));
            }
            Ok(())
        }
        SwarmCommand::Show { id } => {
            let swarm = caller.get(&path(&["swarms", &id], &[])).await?;
            terminal::print(&format!("{swarm:#}"));
            Ok(())
        }
        SwarmCommand::Cancel { id } => {
            let cancel = path(&["swarms", &id, "cancel"], &[]);
            let url = format!("{}{cancel}", caller.base);
            caller.send(caller.http.post(url)).await?;
            eprintln!("The swarm ends within two seconds.");
            Ok(())
        }
        SwarmCommand::Resume { id, budget } => {
            let resume = path(&["swarms", &id, "resume"], &[]);
            let mut body = json!({});
            if let Some(budget) = budget {
                body["max_total_credits"] = json!(budget);
            }
            let url = format!("{}{resume}", caller.base);
            let asked = caller.http.post(url);
            let asked = asked.header("content-type", "application/json");
            caller.send(asked.body(body.to_string())).await?;
            eprintln!("The swarm goes on; `weir swarm show {id}` shows it.");
            Ok(())
        }
        SwarmCommand::Delete { id } => {
            let swarm = path(&["swarms", &id], &[]);
            let shown = caller.get(&swarm).await?;
            if ["queued", "running"]
                .iter()
                .any(|open| shown["status"] == *open)
            {
                bail!("the swarm has not finished; cancel it first: weir swarm cancel {id}");
            }
            caller
                .send(caller.http.delete(format!("{}{swarm}", caller.base)))
                .await?;
            eprintln!("Deleted {id}.");
            Ok(())
        }
    }
}

fn read(file: &PathBuf) -> anyhow::Result<Value> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))
}

fn print_list(list: &Value) {
    let mut table = TextTable::new(&["ID", "SWARM", "STATUS", "AGENTS", "CREDITS", "CREATED"]);
    for swarm in list["swarms"].as_array().into_iter().flatten() {
        let text = |field: &str| terminal::line(swarm[field].as_str().unwrap_or_default());
        table.row([
            text("execution_id"),
            text("swarm_id"),
            text("status"),
            format!("{}/{}", swarm["agents_completed"], swarm["agents_total"]),
            swarm["total_credits"].to_string(),
            text("created_at"),
        ]);
    }
    table.print();
}
