//! `weir ledger`: looks into the ledger, and moves what is old out of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use crate::billing::statement::{self, CSV_HEADINGS, StatementReader, csv_line};
use crate::config::Config;
use weir_ledger::archive::archive;
use weir_ledger::plans::days_of_month;
use weir_ledger::verify::{Extent, Violation, keep, look};
use weir_ledger::{AccountId, Store};
use weir_payments::reconcile;
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::database::DatabaseClock;
use weir_storage::secrets::create_private_folder;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Recompute every balance from its entries and every hold from its own, compare payments with what was given for them, and
    /// list what is not sound.
    ///
    /// Begins after the last entry that was found sound, reads the usage of that day again, and compares the payments of the
    /// last 40 days. The gateway may be running. Fails if anything is found; the next time begins where this one did, then.
    Verify {
        /// Read every entry and payment, as if none had been verified.
        #[arg(long)]
        all: bool,
    },
    /// Print what has changed a user's credits, the last one first, with the balance after each, as CSV.
    Statement {
        /// Whose, by the id that `weir user list` shows.
        #[arg(long, value_name = "ID")]
        user: String,
    },
    /// Move the entries of past months into files, so that the database does not grow for ever.
    ///
    /// Verifies first, and moves nothing if anything is found. A line of JSON for each entry is appended to
    /// entries-YYYY-MM.jsonl; in the database an opening entry for each account carries their sum, so that balances are
    /// still the sums of entries. Sums of usage stay, and so does what tells repeats of payments. The gateway may be
    /// running. If it is stopped midway, run it again; an entry may then stand twice in a file, under one number.
    Archive {
        /// The first month that stays; at least its first 30 days must be over.
        #[arg(long, value_name = "YYYY-MM")]
        before: String,
        /// Where the files are written; `archive` in the data folder unless given.
        #[arg(long, value_name = "FOLDER")]
        to: Option<PathBuf>,
    },
}

pub(super) async fn run(config: Config, command: Command) -> anyhow::Result<()> {
    ensure!(
        config.has_database(),
        "there is no database {}: go to the gateway's folder, or name its configuration with --config",
        config.shown_database()
    );
    let database = Database::open(&config.database_url()).await?;
    let done = match command {
        Command::Verify { all } => verify(&database, all).await,
        Command::Statement { user } => print_statement(&database, user).await,
        Command::Archive { before, to } => {
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
    eprintln!("looking whether payments and what was given for them differ");
    let violations = reconcile::look(database, now, extent).await?;
    print(&violations);
    ensure!(
        violations.is_empty(),
        "payments and the ledger differ: {} findings",
        violations.len()
    );
    Ok(format!("The ledger is sound; {entries} entries were read."))
}

async fn print_statement(database: &Database, user: String) -> anyhow::Result<String> {
    let account = AccountId(user);
    let store = Store::new(database.clone());
    if store.find_account(&account).await?.is_none() {
        bail!("there is no user {account}, or they have never had a credit");
    }
    let mut reader = StatementReader::new(store, account);
    let mut page = reader.read().await?;
    let mut lines = CSV_HEADINGS.to_owned();
    loop {
        for line in page.lines {
            csv_line(&mut lines, &statement::item(line));
        }
        print!("{lines}");
        lines.clear();
        let Some(place) = page.next else {
            return Ok(lines);
        };
        page = reader.read_before(place).await?;
    }
}

async fn move_before(database: &Database, month: &str, folder: &Path) -> anyhow::Result<String> {
    let [before, _] = days_of_month(month).context("--before takes a month, such as 2026-01")?;
    let now = now(database).await?;
    find_sound(database, Extent::New, now).await?;
    create_private_folder(folder)?;
    let progress = |moved| eprintln!("{moved} entries are in the archive");
    let moved = archive(database, folder, before, now, every(10_000, progress)).await?;
    Ok(format!(
        "{moved} entries from before {month} are in {}.",
        folder.display()
    ))
}

/// Fails with a list of what is not sound.
async fn find_sound(database: &Database, extent: Extent, now: Millis) -> anyhow::Result<i64> {
    let findings = look(database, now, extent, |what| {
        eprintln!("looking whether {what}");
    });
    let findings = findings.await?;
    print(&findings.violations);
    if !findings.violations.is_empty() {
        bail!(
            "the ledger is not sound: {} findings",
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

/// Passes on a number that has come so much further than the one that was passed on before.
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
