//! `weir user`: what operators change about users.

use anyhow::{Context, ensure};

use crate::audit::{Audit, Event};
use crate::clock::Millis;
use crate::config::Config;
use crate::identity::dev_issuer::{DevAudience, DevIssuer};
use crate::identity::store;
use crate::storage::Database;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Make a web user an administrator, from their next request on.
    GrantAdmin(Who),
    /// Make an administrator an ordinary user, from their next request on.
    RevokeAdmin(Who),
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
    let (Command::GrantAdmin(who) | Command::RevokeAdmin(who)) = &command;
    let user_id = who.find(config, database).await?;
    let (found, event, now) = match command {
        Command::GrantAdmin(_) => (
            store::grant_admin(database, &user_id, Millis::now()).await?,
            Event::AdminGranted {
                user_id: user_id.clone(),
            },
            "now",
        ),
        Command::RevokeAdmin(_) => (
            store::revoke_admin(database, &user_id).await?,
            Event::AdminRevoked {
                user_id: user_id.clone(),
            },
            "not",
        ),
    };
    ensure!(found, "there is no user {user_id}");
    let audit = Audit::start(database.clone());
    audit.record(event);
    audit.flush().await;
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
