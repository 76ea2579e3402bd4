//! `weir token`: tokens of development mode's local issuer, as headers for curl.

use anyhow::{Context, ensure};
use weir_app::config::Config;
use weir_identity::dev_issuer::{DevAudience, DevIssuer, LIFETIME_SECONDS, SERVICE_EMAIL};
use weir_identity::store;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::Timeouts;

use super::connection::no_gateway;

#[derive(clap::Subcommand)]
pub(super) enum TokenCommand {
    /// Print the headers of a web user's requests.
    Web {
        /// The user's name; weir creates the user at the first request.
        #[arg(long, value_name = "NAME")]
        user: String,
        /// Make the user an administrator.
        #[arg(long)]
        admin: bool,
    },
    /// Print the header of a service's requests.
    Service {
        /// The service's e-mail address.
        #[arg(long, default_value = SERVICE_EMAIL)]
        email: String,
        /// The token's scopes: model:call, swarm:run, plugins:write. Repeat the option for each scope.
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// The service that accepts the token.
        #[arg(long, value_enum, default_value = "api")]
        audience: Audience,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Audience {
    /// The public service.
    Api,
    /// The service that runs swarms.
    Executor,
}

pub(super) async fn run(config: Config, command: TokenCommand) -> anyhow::Result<()> {
    // No gateway accepts a token of another folder's issuer.
    ensure!(config.has_database(), no_gateway(&config));
    let issuer = config.dev_issuer()?.context(
        "only development mode (`dev = true`) has a local issuer; otherwise, tokens come from the issuers under `identity`",
    )?;
    let now = Millis::now();
    match command {
        TokenCommand::Web { user, admin } => {
            ensure!(
                config.identity.web.is_none(),
                "web users' tokens come from the issuer under `identity.web` here"
            );
            check(&user, "--user")?;
            let tokens = issuer.web_tokens(&user, now)?;
            if admin {
                make_admin(&config, &user, now).await?;
            }
            println!(
                "-H 'Authorization: Bearer {}' -H 'X-Identity-AppCheck: {}'",
                tokens.identity.expose(),
                tokens.attestation.expose()
            );
        }
        TokenCommand::Service {
            email,
            scopes,
            audience,
        } => {
            ensure!(
                config.identity.service.is_none(),
                "services' tokens come from the issuer under `identity.service` here"
            );
            check(&email, "--email")?;
            for scope in &scopes {
                check(scope, "--scope")?;
                ensure!(!scope.contains(' '), "--scope takes one scope at a time");
            }
            let audience = match audience {
                Audience::Api => DevAudience::Api,
                Audience::Executor => DevAudience::Executor,
            };
            let token = issuer.service_token(audience, &email, &scopes, now)?;
            println!("-H 'Authorization: Bearer {}'", token.expose());
        }
    }
    eprintln!("Valid for {} minutes.", LIFETIME_SECONDS / 60);
    Ok(())
}

async fn make_admin(config: &Config, user: &str, now: Millis) -> anyhow::Result<()> {
    let issuer = DevIssuer::settings(DevAudience::Identity).issuer;
    let database = Database::open_with(&config.database_url(), Timeouts::patient()).await?;
    let user = store::find_or_create_web_user(&database, &issuer, user, now).await?;
    store::grant_admin(&database, &user.id, now).await?;
    database.close().await;
    eprintln!(
        "{} is an administrator in {}.",
        user.id,
        config.shown_database()
    );
    Ok(())
}

fn check(text: &str, option: &str) -> anyhow::Result<()> {
    ensure!(
        (1..=255).contains(&text.len()) && !text.contains(char::is_control),
        "{option} takes 1 to 255 bytes without control characters"
    );
    Ok(())
}
