//! `weir key`: API keys for users.

use crate::audit::{Audit, AuditEvent};
use crate::config::Config;
use crate::identity::pepper::Peppers;
use crate::identity::{api_key, store};
use weir_storage::Database;
use weir_storage::clock::Millis;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Make a key for a user, and the user if there is none of that id. The key is shown once.
    Create {
        /// The user's id.
        #[arg(long, value_name = "ID")]
        user: String,
        /// What the key is called in lists.
        #[arg(long, default_value = "Default")]
        name: String,
    },
}

pub(super) async fn run(config: Config, command: Command) -> anyhow::Result<()> {
    let Command::Create { user, name } = command;
    let fits = |text: &str| (1..=256).contains(&text.len()) && !text.contains(char::is_control);
    anyhow::ensure!(
        fits(&user),
        "--user takes 1 to 256 bytes without control characters"
    );
    anyhow::ensure!(
        fits(&name),
        "--name takes 1 to 256 bytes without control characters"
    );
    config.check_mode()?;
    let database = Database::open(&config.database_url()).await?;
    let peppers = Peppers::open(&config.api_key_peppers, &config.own_pepper(), &database).await?;
    let key = store::create_key(&database, &peppers, &user, &name, false, Millis::now()).await?;
    let created = AuditEvent::KeyCreated {
        user_id: user.clone(),
        key_id: key.id().to_owned(),
    };
    Audit::record_now(&database, created).await;
    database.close().await;
    println!("{}", key.expose());
    eprintln!(
        "This is {} of user {user}; it works for {} days and is not shown again.",
        key.id(),
        api_key::LIFETIME_DAYS
    );
    Ok(())
}
