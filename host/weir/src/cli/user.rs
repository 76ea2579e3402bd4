//! `weir user`: what operators change about users.

use anyhow::{Context, ensure};

use crate::audit::{Audit, AuditEvent};
use crate::config::Config;
use crate::identity::dev_issuer::{DevAudience, DevIssuer};
use crate::identity::store;
use weir_ledger::{
    AccountId, Action, Credits, Grant, LedgerError, Operation, OperationId, Period, Plan, Refusal,
    Store, TopUp,
};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::ids;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Make a web user an administrator, from their next request on.
    GrantAdmin(Who),
    /// Make an administrator an ordinary user, from their next request on.
    RevokeAdmin(Who),
    /// Put a user on a plan for a month from now: what is left of the old plan's credits lapses.
    SetPlan {
        #[command(flatten)]
        who: Who,
        /// free, guru or pro.
        #[arg(long)]
        plan: Plan,
    },
    /// Give a user credits that do not lapse.
    TopUp {
        #[command(flatten)]
        who: Who,
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
    let database = Database::open(&config.database_url()).await?;
    let done = change(&config, &database, command).await;
    database.close().await;
    println!("{}", done?);
    Ok(())
}

async fn change(config: &Config, database: &Database, command: Command) -> anyhow::Result<String> {
    let (Command::GrantAdmin(who)
    | Command::RevokeAdmin(who)
    | Command::SetPlan { who, .. }
    | Command::TopUp { who, .. }) = &command;
    let user_id = who.find(config, database).await?;
    match command {
        Command::GrantAdmin(_) => set_admin(database, user_id, true).await,
        Command::RevokeAdmin(_) => set_admin(database, user_id, false).await,
        Command::SetPlan { plan, .. } => set_plan(database, user_id, plan).await,
        Command::TopUp { credits, .. } => top_up(database, user_id, &credits).await,
    }
}

async fn set_admin(database: &Database, user_id: String, admin: bool) -> anyhow::Result<String> {
    let (found, event, now) = match admin {
        true => (
            store::grant_admin(database, &user_id, Millis::now()).await?,
            AuditEvent::AdminGranted {
                user_id: user_id.clone(),
            },
            "now",
        ),
        false => (
            store::revoke_admin(database, &user_id).await?,
            AuditEvent::AdminRevoked {
                user_id: user_id.clone(),
            },
            "not",
        ),
    };
    ensure!(found, "there is no user {user_id}");
    Audit::record_now(database, event).await;
    Ok(format!("{user_id} is {now} an administrator."))
}

async fn set_plan(database: &Database, user_id: String, plan: Plan) -> anyhow::Result<String> {
    let now = Millis::now();
    let credits = plan.monthly_credits();
    let action = Action::Grant(Grant {
        id: OperationId(ids::operator_action_id()),
        plan,
        period: Period::monthly(now, now),
        credits,
    });
    commit(database, &user_id, action, now).await?;
    Ok(format!(
        "{user_id} is on the plan {plan}, with {credits} credits."
    ))
}

async fn top_up(database: &Database, user_id: String, credits: &str) -> anyhow::Result<String> {
    let credits = Credits::parse(credits)
        .filter(|credits| credits.is_in_range() && *credits > Credits::ZERO)
        .context("--credits takes a number of more than 0 with at most 6 decimals")?;
    let action = Action::TopUp(TopUp {
        id: OperationId(ids::operator_action_id()),
        credits,
    });
    commit(database, &user_id, action, Millis::now()).await?;
    Ok(format!("{user_id} has {credits} credits more."))
}

async fn commit(
    database: &Database,
    user_id: &str,
    action: Action,
    at: Millis,
) -> anyhow::Result<()> {
    let operation = Operation {
        account: AccountId(user_id.to_owned()),
        at,
        action,
    };
    let outcome = weir_ledger::commit_one(&Store::new(database.clone()), operation).await;
    let is_unknown = outcome == Err(LedgerError::Refused(Refusal::UnknownAccount));
    ensure!(!is_unknown, "there is no user {user_id}");
    outcome.map(drop).context("changing the account")
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
