//! `weir user`: what operators change about users.

use anyhow::{Context, ensure};

use crate::audit::{Audit, Event};
use crate::billing::ledger::{
    self, AccountId, Action, Grant, LedgerError, Operation, OperationId, Refusal, Store, TopUp,
};
use crate::billing::{Credits, Period, Plan};
use crate::clock::Millis;
use crate::config::Config;
use crate::identity::dev_issuer::{DevAudience, DevIssuer};
use crate::identity::store;
use crate::ids;
use crate::storage::Database;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Make a web user an administrator, from their next request on.
    GrantAdmin(Who),
    /// Make an administrator an ordinary user, from their next request on.
    RevokeAdmin(Who),
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

/// Users appear with their first request; there is none to name before.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Who {
    /// The user's id, such as usr_…
    #[arg(long, value_name = "ID")]
    user: Option<String>,
    /// What the issuer of web users' tokens calls the user: the tokens' `sub`.
    #[arg(long, value_name = "SUB")]
    subject: Option<String>,
}

pub(super) async fn run(config: Config, command: Command) -> anyhow::Result<()> {
    match command {
        Command::GrantAdmin(who) => set_admin(&config, &who, true).await,
        Command::RevokeAdmin(who) => set_admin(&config, &who, false).await,
        Command::SetPlan { user, plan } => set_plan(&config, user, plan).await,
        Command::TopUp { user, credits } => top_up(&config, user, &credits).await,
    }
}

async fn set_admin(config: &Config, who: &Who, admin: bool) -> anyhow::Result<()> {
    let database = Database::open(&config.database_url()).await?;
    let changed = change_admin(config, &database, who, admin).await;
    database.close().await;
    println!("{}", changed?);
    Ok(())
}

async fn change_admin(
    config: &Config,
    database: &Database,
    who: &Who,
    admin: bool,
) -> anyhow::Result<String> {
    let user_id = who.find(config, database).await?;
    let (found, event) = if admin {
        let found = store::grant_admin(database, &user_id, Millis::now()).await?;
        let user_id = user_id.clone();
        (found, Event::AdminGranted { user_id })
    } else {
        let found = store::revoke_admin(database, &user_id).await?;
        let user_id = user_id.clone();
        (found, Event::AdminRevoked { user_id })
    };
    ensure!(found, "there is no user {user_id}");
    let audit = Audit::start(database.clone());
    audit.record(event);
    audit.flush().await;
    let now = if admin { "now" } else { "not" };
    Ok(format!("{user_id} is {now} an administrator."))
}

impl Who {
    async fn find(&self, config: &Config, database: &Database) -> anyhow::Result<String> {
        let subject = match (&self.user, &self.subject) {
            (Some(user), _) => return Ok(user.clone()),
            (None, Some(subject)) => subject,
            (None, None) => unreachable!("the group is required"),
        };
        let issuer = match &config.identity.web {
            Some(web) => web.issuer.clone(),
            None if config.is_dev() => DevIssuer::settings(DevAudience::Identity).issuer,
            None => anyhow::bail!("there is no issuer of web users under `identity.web`"),
        };
        let user = store::find_web_user(database.reader(), &issuer, subject).await?;
        let user = user.with_context(|| {
            format!("{issuer} has named no {subject:?} yet; users appear with their first request")
        })?;
        Ok(user.id)
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
