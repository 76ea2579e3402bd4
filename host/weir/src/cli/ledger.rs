//! `weir ledger`: looks into the ledger.

use anyhow::bail;

use crate::config::Config;
use weir_ledger::verify::verify;
use weir_storage::Database;
use weir_storage::clock::Millis;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Recompute every balance from its entries and every hold from its own, and list what is not sound.
    ///
    /// The gateway may be running. Fails if anything is found.
    Verify,
}

pub(super) async fn run(config: Config, command: Command) -> anyhow::Result<()> {
    let Command::Verify = command;
    let database = Database::open(&config.database_url()).await?;
    let violations = verify(&database, Millis::now()).await?;
    database.close().await;
    for violation in &violations {
        println!(
            "{} {}: {}",
            violation.invariant, violation.subject, violation.what
        );
    }
    if violations.is_empty() {
        println!("The ledger is sound.");
        return Ok(());
    }
    bail!("the ledger is not sound: {} findings", violations.len());
}
