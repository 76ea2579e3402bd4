//! `weir key`: API keys of users.

use anyhow::anyhow;
use weir_accounts::keys;
use weir_app::config::Config;
use weir_console::admin::keys::{AdminCreatedKey, AdminKeyList, AdminNewKey};
use weir_identity::api_key::LIFETIME_DAYS;
use weir_identity::pepper::Peppers;
use weir_identity::scope::KeyScope;
use weir_ledger::Budget;
use weir_request::audit::Actor;
use weir_request::limits::data::{DataLimits, Regions};

use super::connection::{
    AdminConnection, GatewayAnswer, OperatorCommand, RequiredParts, operate, path,
};
use super::table::{TextTable, optional};
use super::user::{budget, shown};

#[derive(clap::Subcommand)]
pub(super) enum KeyCommand {
    /// Create a key for a user, and create the user if the id is new. The key is shown once.
    Create {
        /// The user's id.
        #[arg(long, value_name = "ID")]
        user: String,
        /// The key's name in lists.
        #[arg(long, default_value = "Default")]
        name: String,
        /// Budget: credits that the key may spend in a calendar window, in UTC: hour, day, week, month or total, such
        /// as day=50. Repeat the option for each window.
        #[arg(long, value_name = "WINDOW=CREDITS", value_parser = budget)]
        budget: Vec<Budget>,
        /// A model that the key may use; repeat the option for each model. Without it the key may use all models.
        #[arg(long, value_name = "MODEL")]
        model: Vec<String>,
        /// A region in which providers of the key's requests may process data, such as eu; repeat the option for each
        /// region. Without it any region is allowed.
        #[arg(long, value_name = "REGION")]
        region: Vec<String>,
        /// Maximum days for which a provider may keep the key's requests. Without it any number is allowed.
        #[arg(long, value_name = "DAYS")]
        max_retention_days: Option<u16>,
        /// Days until the key expires, at most 90.
        #[arg(long, value_name = "DAYS", default_value_t = LIFETIME_DAYS)]
        expires_in_days: i64,
        /// Endpoints that the key may use: inference allows only calls and lists of models.
        #[arg(long, value_name = "SCOPE", default_value_t = KeyScope::Full)]
        scope: KeyScope,
    },
    /// List keys by user and age: their ids and first characters, never the complete keys.
    List {
        /// List only this user's keys.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// List only active keys: neither revoked nor expired.
        #[arg(long)]
        active: bool,
        /// Maximum number of keys, up to 1000.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Continue after the key with this id.
        #[arg(long, value_name = "KEY_ID")]
        after: Option<String>,
        /// Print the gateway's response as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key: every node rejects it immediately.
    Revoke {
        /// The key's id, such as key_0123456789abcdef: see `weir key list`.
        #[arg(value_name = "KEY_ID")]
        key: String,
    },
}

pub(super) async fn run(
    config: Config,
    operated: OperatorCommand<KeyCommand>,
) -> anyhow::Result<()> {
    let OperatorCommand { command, offline } = operated;
    let operated = operate(
        &config,
        RequiredParts::Stores,
        offline,
        async |connection| match command {
            KeyCommand::Create {
                user,
                name,
                budget,
                model,
                region,
                max_retention_days,
                expires_in_days,
                scope,
            } => {
                let regions = Some(region).filter(|regions| !regions.is_empty());
                let regions = regions.map(Regions::try_from).transpose();
                let data_limits = DataLimits {
                    regions: regions.map_err(|wrong| anyhow!("--region: {wrong}"))?,
                    max_retention_days,
                };
                let new = AdminNewKey {
                    user_id: user,
                    name,
                    budgets: Some(budget).filter(|budgets| !budgets.is_empty()),
                    budget_credits: None,
                    window: None,
                    models: Some(model).filter(|models| !models.is_empty()),
                    data_limits: Some(data_limits).filter(|limits| !limits.is_empty()),
                    expires_in_days: Some(expires_in_days),
                    // Older gateways do not know the field.
                    scope: Some(scope).filter(|scope| *scope != KeyScope::Full),
                };
                create(&config, connection, &new).await
            }
            KeyCommand::List {
                user,
                active,
                limit,
                after,
                json,
            } => {
                let query = [
                    ("user_id", user),
                    ("active", active.then(|| "true".to_owned())),
                    ("limit", Some(limit.to_string())),
                    ("after", after),
                ];
                let keys = connection.get(&path(&["admin", "keys"], &query)).await?;
                keys.show(json, print);
                Ok(())
            }
            KeyCommand::Revoke { key } => {
                connection
                    .delete(&path(&["admin", "keys", &key], &[]))
                    .await?;
                println!("Revoked {key}.");
                Ok(())
            }
        },
    );
    operated.await
}

async fn create(
    config: &Config,
    connection: &AdminConnection,
    new: &AdminNewKey,
) -> anyhow::Result<()> {
    let AdminNewKey {
        user_id: user,
        name,
        ..
    } = new;
    let fits =
        |text: &str| (1..=256).contains(&text.chars().count()) && !text.contains(char::is_control);
    anyhow::ensure!(
        fits(user),
        "--user takes 1 to 256 characters without control characters"
    );
    anyhow::ensure!(
        fits(name),
        "--name takes 1 to 256 characters without control characters"
    );
    // The complete catalog is unknown without a gateway.
    let limits = new
        .limits(None)
        .map_err(|error| anyhow!("{}", error.message()))?;
    let (key, id) = match connection.core() {
        None => {
            let new = serde_json::to_value(new)?;
            let created: GatewayAnswer<AdminCreatedKey> =
                connection.post("/admin/keys", &new).await?;
            (created.parsed.api_key, created.parsed.key_id)
        }
        Some(core) => {
            config.check_mode()?;
            let (configured, own) = (&config.api_key_peppers, config.own_pepper());
            let peppers = Peppers::read(configured, &own)?;
            peppers.compare(&core.database).await?;
            let (owner, by) = ((&**user, &**name), Actor::myself());
            let made = keys::create_key(core, &peppers, owner, &limits, &by).await;
            let (key, _) = made.map_err(|error| anyhow!("{}", error.message()))?;
            connection.say_where();
            (key.expose().to_owned(), key.id().to_owned())
        }
    };
    println!("{key}");
    eprintln!(
        "Created {id} for user {user}; it expires in {} days. The key is not shown again.",
        limits.days
    );
    Ok(())
}

fn print(AdminKeyList { keys, next }: &AdminKeyList) {
    let mut table = TextTable::new(&[
        "KEY",
        "USER",
        "NAME",
        "BEGINS",
        "CREATED",
        "LAST USED",
        "EXPIRES",
        "STATE",
        "SCOPE",
        "BUDGETS",
        "MODELS",
        "PROVIDERS",
    ]);
    for key in keys {
        table.row([
            key.key_id.clone(),
            key.user_id.clone(),
            key.name.clone(),
            key.prefix.clone(),
            key.created_at.clone(),
            optional(&key.last_used_at),
            key.expires_at.clone(),
            key.state.clone(),
            key.scope.to_string(),
            shown(&key.budgets),
            key.models
                .as_ref()
                .map_or(String::new(), |models| models.join(" ")),
            key.data_limits.shown().join("; "),
        ]);
    }
    table.print();
    if let Some(next) = next {
        eprintln!("More keys exist: --after {next}");
    }
}
