//! `weir ledger`: verifies the ledger, and moves old entries out of the database.

use std::mem;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use weir_accounts::billing::statement::{self, CSV_HEADINGS, StatementReader, csv_line};
use weir_app::config::Config;
use weir_ledger::archive::archive;
use weir_ledger::plans::days_of_month;
use weir_ledger::verify::{Extent, Violation, keep, look};
use weir_ledger::{AccountId, LedgerStore};
use weir_payments::reconcile;
use weir_request::csv_export::CsvLines;
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::database::{DatabaseClock, Timeouts};
use weir_storage::secrets::create_private_folder;

#[derive(clap::Subcommand)]
pub(super) enum LedgerCommand {
    /// Recompute every balance and every hold from their entries, compare payments with the credits granted for them,
    /// and list the discrepancies.
    ///
    /// Verification starts after the last verified entry, reads that day's usage again, and compares the payments of
    /// the last 40 days. The gateway may be running. The command fails if it finds a discrepancy; the next run then
    /// starts at the same entry.
    Verify {
        /// Read every entry and payment, including verified ones.
        #[arg(long)]
        all: bool,
    },
    /// Print the changes of a user's credits as CSV, newest first, with the balance after each.
    Statement {
        /// The user's id, as `weir user list` shows it.
        #[arg(long, value_name = "ID")]
        user: String,
    },
    /// Move the entries of past months into files to limit the database's size.
    ///
    /// The command verifies the ledger first, and moves nothing if it finds a discrepancy. It appends a line of JSON
    /// for each entry to entries-YYYY-MM.jsonl. In the database, one opening entry for each account carries the sum, so
    /// that each balance is still the sum of its entries. Usage totals and the records that detect repeated payments
    /// stay. The gateway may be running. If the command is interrupted, run it again; an entry may then be twice in a
    /// file, with the same number.
    Archive {
        /// The first month that stays in the database; its first 30 days must be over.
        #[arg(long, value_name = "YYYY-MM")]
        before: String,
        /// The folder for the files; default: `archive` in the data folder.
        #[arg(long, value_name = "FOLDER")]
        to: Option<PathBuf>,
    },
}

pub(super) async fn run(config: Config, command: LedgerCommand) -> anyhow::Result<()> {
    ensure!(
        config.has_database(),
        "the database {} does not exist: change to the gateway's folder, or name its configuration with --config",
        config.shown_database()
    );
    let database = Database::open_with(&config.database_url(), Timeouts::patient()).await?;
    let done = match command {
        LedgerCommand::Verify { all } => verify(&database, all).await,
        LedgerCommand::Statement { user } => print_statement(&database, user).await,
        LedgerCommand::Archive { before, to } => {
            let folder = to.unwrap_or_else(|| config.data_dir.join("archive"));
            move_before(&database, &before, &folder).await
        }
    };
    database.close().await;
    let done = done?;
    if !done.is_empty() {
        println!("{done}");
    }
    Ok(())
}

async fn verify(database: &Database, all: bool) -> anyhow::Result<String> {
    let extent = if all { Extent::All } else { Extent::New };
    let now = now(database).await?;
    let entries = find_sound(database, extent, now).await?;
    eprintln!("comparing payments with the credits granted for them");
    let violations = reconcile::look(database, now, extent).await?;
    print(&violations);
    ensure!(
        violations.is_empty(),
        "payments and the ledger differ: {} discrepancies",
        violations.len()
    );
    Ok(format!(
        "The ledger is consistent; {entries} entries were read."
    ))
}

async fn print_statement(database: &Database, user: String) -> anyhow::Result<String> {
    let account = AccountId(user);
    let store = LedgerStore::new(database.clone());
    if store.find_account(&account).await?.is_none() {
        bail!("user {account} does not exist or never had credits");
    }
    let mut reader = StatementReader::new(store, account);
    let mut page = reader.read().await?;
    let mut lines = CsvLines::of(CSV_HEADINGS);
    loop {
        for line in page.lines {
            csv_line(&mut lines, &statement::item(line));
        }
        print!("{}", mem::take(&mut lines).finish());
        let Some(place) = page.next else {
            return Ok(String::new());
        };
        page = reader.read_before(place).await?;
    }
}

async fn move_before(database: &Database, month: &str, folder: &Path) -> anyhow::Result<String> {
    let [before, _] = days_of_month(month).context("--before takes a month, such as 2026-01")?;
    let now = now(database).await?;
    find_sound(database, Extent::New, now).await?;
    create_private_folder(folder)?;
    let progress = |moved| eprintln!("{moved} entries archived");
    let moved = archive(database, folder, before, now, every(10_000, progress)).await?;
    Ok(format!(
        "Moved {moved} entries from before {month} to {}.",
        folder.display()
    ))
}

/// Fails with the list of discrepancies.
async fn find_sound(database: &Database, extent: Extent, now: Millis) -> anyhow::Result<i64> {
    let store = LedgerStore::new(database.clone());
    store.fold_for_reader(None).await;
    let findings = look(database, now, extent, |what| {
        eprintln!("looking whether {what}");
    });
    let findings = findings.await?;
    print(&findings.violations);
    if !findings.violations.is_empty() {
        bail!(
            "the ledger is inconsistent: {} discrepancies",
            findings.violations.len()
        );
    }
    let progress = |number| eprintln!("verified up to entry {number}");
    keep(database, &findings, every(100_000, progress)).await?;
    Ok(findings.entries)
}

fn print(violations: &[Violation]) {
    for violation in violations {
        println!(
            "{} {}: {}",
            violation.invariant, violation.subject, violation.what
        );
    }
}

/// Forwards a number to `progress` once it exceeds the last forwarded number by `step`.
fn every(step: i64, mut progress: impl FnMut(i64)) -> impl FnMut(i64) {
    let mut next = step;
    move |number| {
        if number >= next {
            next = number + step;
            progress(number);
        }
    }
}

async fn now(database: &Database) -> anyhow::Result<Millis> {
    let clock = DatabaseClock::start(database.clone(), Clock::System).await?;
    Ok(clock.now())
}
