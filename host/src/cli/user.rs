//! `weir user`: what operators do to an account.

use anyhow::{Context, ensure};

use crate::billing::ledger::{
    self, AccountId, Action, Grant, LedgerError, Operation, OperationId, Refusal, Store, TopUp,
};
use crate::billing::{Credits, Period, Plan};
use crate::clock::Millis;
use crate::config::Config;
use crate::ids;
use crate::storage::Database;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Put a user on a plan for a month from now: what is left of the old plan's credits lapses.
    SetPlan {
        /// The user's id.
        #[arg(long, value_name = "ID")]
        user: String,
        /// free, guru or pro.
        #[arg(long)]
        plan: Plan,
    },
    /// Give a user credits that do not lapse.
    TopUp {
        /// The user's id.
        #[arg(long, value_name = "ID")]
        user: String,
        /// How many, such as 5000 or 0.5.
        #[arg(long)]
        credits: String,
    },
}

pub(super) async fn run(config: Config, command: Command) -> anyhow::Result<()> {
    match command {
        Command::SetPlan { user, plan } => set_plan(&config, user, plan).await,
        Command::TopUp { user, credits } => top_up(&config, user, &credits).await,
    }
}

async fn set_plan(config: &Config, user: String, plan: Plan) -> anyhow::Result<()> {
    let now = Millis::now();
    let period = Period::monthly(now, now);
    let action = Action::Grant(Grant {
        id: OperationId(ids::operator_action_id()),
        plan,
        period,
        credits: plan.monthly_credits(),
    });
    commit(config, &user, action, now).await?;
    println!(
        "User {user} is on the plan {plan}, with {} credits.",
        plan.monthly_credits()
    );
    Ok(())
}

async fn top_up(config: &Config, user: String, credits: &str) -> anyhow::Result<()> {
    let credits = Credits::parse(credits)
        .filter(|credits| credits.is_in_range() && *credits > Credits::ZERO)
        .context("--credits takes a number of more than 0 with at most 6 decimals")?;
    let action = Action::TopUp(TopUp {
        id: OperationId(ids::operator_action_id()),
        credits,
    });
    commit(config, &user, action, Millis::now()).await?;
    println!("User {user} has {credits} credits more.");
    Ok(())
}

async fn commit(config: &Config, user: &str, action: Action, at: Millis) -> anyhow::Result<()> {
    ensure!(
        (1..=256).contains(&user.len()) && !user.contains(char::is_control),
        "--user takes 1 to 256 bytes without control characters"
    );
    let database = Database::open(&config.database_url()).await?;
    let operation = Operation {
        account: AccountId(user.to_owned()),
        at,
        action,
    };
    let outcome = ledger::commit_one(&Store::new(database.clone()), operation).await;
    database.close().await;
    match outcome {
        Err(LedgerError::Refused(Refusal::UnknownAccount)) => {
            anyhow::bail!("there is no user {user:?}")
        }
        outcome => outcome.map(drop).context("changing the account"),
    }
}
