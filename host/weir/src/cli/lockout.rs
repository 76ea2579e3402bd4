//! `weir lockout`: addresses that are locked out after failed authentications.

use std::net::IpAddr;

use weir_app::config::Config;
use weir_console::admin::lockouts::LockoutList;

use super::connection::{OperatorCommand, RequiredParts, operate, path};
use super::table::TextTable;

#[derive(clap::Subcommand)]
pub(super) enum LockoutCommand {
    /// List locked-out addresses, and the end of each lockout.
    List {
        /// Maximum number of addresses, up to 1000.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Print the gateway's response as JSON.
        #[arg(long)]
        json: bool,
    },
    /// End an address's lockout. For an IPv6 client, any address of its network works.
    Clear {
        /// The address.
        #[arg(value_name = "ADDRESS")]
        address: IpAddr,
    },
}

pub(super) async fn run(
    config: Config,
    operated: OperatorCommand<LockoutCommand>,
) -> anyhow::Result<()> {
    let OperatorCommand { command, offline } = operated;
    let operated = operate(
        &config,
        RequiredParts::Stores,
        offline,
        async |connection| match command {
            LockoutCommand::List { limit, json } => {
                let query = [("limit", Some(limit.to_string()))];
                let lockouts = connection
                    .get(&path(&["admin", "lockouts"], &query))
                    .await?;
                lockouts.show(json, print);
                Ok(())
            }
            LockoutCommand::Clear { address } => {
                let address = address.to_string();
                connection
                    .delete(&path(&["admin", "lockouts", &address], &[]))
                    .await?;
                println!("Ended the lockout of {address}.");
                Ok(())
            }
        },
    );
    operated.await
}

fn print(LockoutList { lockouts }: &LockoutList) {
    let mut table = TextTable::new(&["ADDRESS", "FAILURES", "UNTIL"]);
    for lockout in lockouts {
        table.row([
            lockout.address.clone(),
            lockout.failures.to_string(),
            lockout.until.clone(),
        ]);
    }
    table.print();
}
