//! `weir mcp`: remote MCP tools, their approved definitions and their changes.

use anyhow::{Context, anyhow};
use http::Method;
use serde_json::json;
use weir_app::config::Config;
use weir_tools::remote::routes::PinnedToolList;
use weir_tools::remote::store::PinnedTool;

use super::connection::{GatewayAnswer, OfflineArgument, RequiredParts, operate, path};
use super::table::TextTable;

#[derive(clap::Args)]
pub(super) struct McpArguments {
    #[command(subcommand)]
    command: McpCommand,
    #[command(flatten)]
    offline: OfflineArgument,
}

#[derive(clap::Subcommand)]
enum McpCommand {
    /// List all tools that the servers of `[mcp.NAME]` ever offered, and mark the changed ones.
    List {
        /// Print the gateway's response as JSON, with each tool's approved and current definition.
        #[arg(long)]
        json: bool,
    },
    /// Approve a changed tool: serve it with its current definition.
    Approve {
        /// The server and its tool.
        #[arg(value_name = "NAME.TOOL")]
        tool: String,
    },
}

pub(super) async fn run(config: Config, arguments: McpArguments) -> anyhow::Result<()> {
    let operated = operate(
        &config,
        RequiredParts::Plugins,
        arguments.offline,
        async |connection| {
            let all: GatewayAnswer<PinnedToolList> = connection.get("/admin/mcp/tools").await?;
            match arguments.command {
                McpCommand::List { json } => all.show(json, |all| print(&all.tools)),
                McpCommand::Approve { tool } => {
                    let (server, name) = tool
                        .split_once('.')
                        .context("a tool has the form NAME.TOOL")?;
                    let is_it =
                        |pinned: &&PinnedTool| pinned.server == server && pinned.tool == name;
                    let found = all.parsed.tools.iter().find(is_it);
                    let found =
                        found.ok_or_else(|| anyhow!("no server ever offered the tool {tool}"))?;
                    let (Some(digest), Some(definition)) =
                        (&found.changed_digest, &found.changed_definition)
                    else {
                        return Err(anyhow!("the tool {tool} has not changed"));
                    };
                    let path = path(&["admin", "mcp", "tools", server, name, "approve"], &[]);
                    let body = json!({ "digest": digest }).to_string();
                    let body = Some(("application/json", body.into()));
                    connection.send(Method::POST, &path, body).await?;
                    println!(
                        "{tool} was\n  {}\nand is from now on\n  {definition}",
                        found.definition
                    );
                }
            }
            Ok(())
        },
    );
    operated.await
}

fn print(tools: &[PinnedTool]) {
    let mut table = TextTable::new(&["TOOL", "STATE", "DIGEST", "CHANGED TO"]);
    for tool in tools {
        let changed = tool.changed_digest.as_deref();
        table.row([
            format!("{}.{}", tool.server, tool.tool),
            changed.map_or("serves", |_| "changed").to_owned(),
            tool.digest.clone(),
            changed.unwrap_or("-").to_owned(),
        ]);
    }
    table.print();
}
