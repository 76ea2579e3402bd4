//! `weir user`: users, their plans, credits, budgets and rights.

use anyhow::{Context, anyhow, bail};
use http::Method;
use serde_json::{Value, json};
use weir_accounts::billing::budgets::BudgetItem;
use weir_app::config::Config;
use weir_app::privacy::Erasure;
use weir_console::admin::users::{
    BudgetChange, CreditAdjustment, CreditGift, PlanChange, SignedCredits, UserItem, UserList,
};
use weir_identity::dev_issuer::{DevAudience, DevIssuer};
use weir_ledger::{Budget, BudgetWindow, ChangeDirection, Credits, Plan, Pool};

use super::connection::{
    AdminConnection, GatewayAnswer, OperatorCommand, RequiredParts, operate, path,
};
use super::table::{TextTable, optional};

#[derive(clap::Subcommand)]
pub(super) enum UserCommand {
    /// List users by id.
    List {
        /// List only users on this plan: free, guru or pro.
        #[arg(long)]
        plan: Option<Plan>,
        /// List only administrators.
        #[arg(long)]
        admin: bool,
        /// List only disabled users.
        #[arg(long)]
        disabled: bool,
        /// Maximum number of users, up to 1000.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Continue after the user with this id.
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Print the gateway's response as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a user and their credits.
    Show {
        #[command(flatten)]
        who: UserSelector,
        /// Print the gateway's response as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Disable a user: reject their API keys and sign-ins immediately.
    ///
    /// Every node rejects the user's new requests immediately, as after the revocation of a key. Requests in progress
    /// complete.
    Disable(UserSelector),
    /// Enable a disabled user again, with their former keys.
    Enable(UserSelector),
    /// Print everything that weir stores about a person, as one JSON document.
    Export {
        /// The user's id.
        #[arg(long, value_name = "ID")]
        user: String,
    },
    /// Erase a person for ever: their keys, memberships, tasks, swarms and personal data.
    ///
    /// Ledger entries, payments and audit events keep the user's id, which names nobody.
    Erase {
        /// The user's id.
        #[arg(long, value_name = "ID")]
        user: String,
        /// The same id once more.
        #[arg(long, value_name = "ID")]
        confirm: String,
        /// Erase a user who has bought credits left; they are lost.
        #[arg(long)]
        forfeit_credits: bool,
    },
    /// Make a web user an administrator, from their next request.
    GrantAdmin(UserSelector),
    /// Make an administrator an ordinary user, from their next request.
    RevokeAdmin(UserSelector),
    /// Put a user on a plan for a month from now; the rest of the old plan's credits expires.
    SetPlan {
        #[command(flatten)]
        who: UserSelector,
        /// free, guru or pro.
        #[arg(long)]
        plan: Plan,
    },
    /// Give a user credits that do not expire.
    TopUp {
        #[command(flatten)]
        who: UserSelector,
        /// Number of credits, such as 5000 or 0.5.
        #[arg(long)]
        credits: String,
        /// An idempotency key for this gift, such as an invoice's number: repeated commands with the same id give the
        /// credits once.
        #[arg(long, value_name = "NAME")]
        id: Option<String>,
    },
    /// Replace a user's budgets; a window that stays keeps its count.
    SetBudgets {
        #[command(flatten)]
        who: UserSelector,
        /// Credits of a calendar window, in UTC: hour, day, week, month or total, such as day=500. Repeat the option
        /// for each window.
        #[arg(long, value_name = "WINDOW=CREDITS", value_parser = budget, required_unless_present = "none")]
        budget: Vec<Budget>,
        /// Remove all budgets: the user may spend all their credits.
        #[arg(long, conflicts_with = "budget")]
        none: bool,
    },
    /// Correct a user's credits: add or remove credits, for a reason that their statement shows.
    Adjust {
        #[command(flatten)]
        who: UserSelector,
        /// Number of credits, such as 5000; a negative number removes credits, completely or not at all.
        #[arg(long, allow_negative_numbers = true)]
        credits: String,
        /// Change the plan's credits, which expire with its period, instead of bought credits.
        #[arg(long)]
        plan: bool,
        /// The reason.
        #[arg(long)]
        reason: String,
        /// An idempotency key for this correction, such as a ticket's number: repeated commands with the same id
        /// correct the credits once.
        #[arg(long, value_name = "NAME")]
        id: Option<String>,
    },
}

/// weir creates users at their first request; users without a request cannot be named.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct UserSelector {
    /// The user's id, such as usr_…
    #[arg(long, value_name = "ID")]
    user: Option<String>,
    /// The user's name at the issuer of web users' tokens: the tokens' `sub`.
    #[arg(long, value_name = "SUB")]
    subject: Option<String>,
}

/// A command about users, on a gateway.
struct UserRequests<'a> {
    config: &'a Config,
    connection: &'a AdminConnection,
}

pub(super) async fn run(
    config: Config,
    operated: OperatorCommand<UserCommand>,
) -> anyhow::Result<()> {
    let OperatorCommand { command, offline } = operated;
    let needs = match command {
        // Only a complete gateway has the keys that decrypt tasks.
        UserCommand::Export { .. } => RequiredParts::Plugins,
        _ => RequiredParts::Stores,
    };
    let operated = operate(&config, needs, offline, async |connection| {
        let users = UserRequests {
            config: &config,
            connection,
        };
        users.run(command).await
    });
    operated.await
}

impl UserRequests<'_> {
    async fn run(&self, command: UserCommand) -> anyhow::Result<()> {
        match command {
            UserCommand::List {
                plan,
                admin,
                disabled,
                limit,
                after,
                json,
            } => {
                let only = |flag: bool| flag.then(|| "true".to_owned());
                let query = [
                    ("plan", plan.map(|plan| plan.to_string())),
                    ("admin", only(admin)),
                    ("disabled", only(disabled)),
                    ("limit", Some(limit.to_string())),
                    ("after", after),
                ];
                let users = path(&["admin", "users"], &query);
                self.connection.get(&users).await?.show(json, print_list);
            }
            UserCommand::Show { who, json } => {
                let user = path(&["admin", "users", &self.find(who).await?], &[]);
                self.connection.get(&user).await?.show(json, print_user);
            }
            UserCommand::Disable(who) => {
                let user = self.change(who, "disable", json!({})).await?;
                println!("{} is disabled.", user.user_id);
            }
            UserCommand::Enable(who) => {
                let user = self.change(who, "enable", json!({})).await?;
                println!("{} is enabled.", user.user_id);
            }
            UserCommand::Export { user } => {
                let export = path(&["admin", "users", &user, "export"], &[]);
                let document: GatewayAnswer<Value> = self.connection.get(&export).await?;
                document.show(true, |_| {});
            }
            UserCommand::Erase {
                user,
                confirm,
                forfeit_credits,
            } => {
                let forfeits = forfeit_credits.then(|| "true".to_owned());
                let erase = path(&["admin", "users", &user], &[("forfeit_credits", forfeits)]);
                let body = json!({ "confirm": confirm }).to_string();
                let body = Some(("application/json", body.into()));
                let answer = self.connection.send(Method::DELETE, &erase, body).await?;
                let erased: GatewayAnswer<Erasure> = answer.parse()?;
                let Erasure { user_id, erased_at } = erased.parsed;
                println!("{user_id} is erased, since {erased_at}.");
            }
            UserCommand::GrantAdmin(who) => {
                let user = self.change(who, "grant-admin", json!({})).await?;
                println!("{} is now an administrator.", user.user_id);
            }
            UserCommand::RevokeAdmin(who) => {
                let user = self.change(who, "revoke-admin", json!({})).await?;
                println!("{} is not an administrator.", user.user_id);
            }
            UserCommand::SetPlan { who, plan } => {
                let body = serde_json::to_value(PlanChange { plan })?;
                let user = self.change(who, "plan", body).await?;
                println!(
                    "{} is on the plan {plan}, with {} credits.",
                    user.user_id,
                    plan.monthly_credits()
                );
            }
            UserCommand::TopUp { who, credits, id } => {
                let credits = Credits::parse(&credits)
                    .filter(|credits| credits.is_in_range() && *credits > Credits::ZERO)
                    .context("--credits takes a positive number with at most 6 decimals")?;
                let body = serde_json::to_value(CreditGift { credits, id })?;
                let user = self.change(who, "top-up", body).await?;
                println!("{} has {credits} credits more.", user.user_id);
            }
            UserCommand::SetBudgets {
                who,
                budget,
                none: _,
            } => {
                let body = serde_json::to_value(BudgetChange { budgets: budget })?;
                let user = self.change(who, "budgets", body).await?;
                let budgets = user.account.map(|account| account.budgets);
                match budgets.unwrap_or_default().as_slice() {
                    [] => println!("{} may spend all that they have.", user.user_id),
                    budgets => println!("{} may spend {}.", user.user_id, shown(budgets)),
                }
            }
            UserCommand::Adjust {
                who,
                credits,
                plan,
                reason,
                id,
            } => {
                let credits: SignedCredits = credits
                    .parse()
                    .map_err(|what| anyhow!("--credits takes {what}"))?;
                let body = serde_json::to_value(CreditAdjustment {
                    credits,
                    pool: if plan { Pool::Plan } else { Pool::TopUp },
                    reason,
                    id,
                })?;
                let user = self.change(who, "adjust", body).await?;
                let more_or_less = match credits.way {
                    ChangeDirection::Give => "more",
                    ChangeDirection::Take => "less",
                };
                println!(
                    "{} has {} credits {more_or_less}.",
                    user.user_id, credits.credits
                );
            }
        }
        Ok(())
    }

    async fn change(&self, who: UserSelector, what: &str, body: Value) -> anyhow::Result<UserItem> {
        let user_id = self.find(who).await?;
        let path = path(&["admin", "users", &user_id, what], &[]);
        Ok(self.connection.post(&path, &body).await?.parsed)
    }

    async fn find(&self, who: UserSelector) -> anyhow::Result<String> {
        let subject = match (who.user, who.subject) {
            (Some(user), _) => return Ok(user),
            (None, Some(subject)) => subject,
            (None, None) => unreachable!("the group is required"),
        };
        let issuer = match &self.config.identity.web {
            Some(web) => web.issuer.clone(),
            None if self.config.is_dev() => DevIssuer::settings(DevAudience::Identity).issuer,
            None => bail!("`identity.web` configures no issuer of web users"),
        };
        let query = [("subject", Some(subject.clone()))];
        let named: GatewayAnswer<UserList> = self
            .connection
            .get(&path(&["admin", "users"], &query))
            .await?;
        let mut named = named.parsed.users.into_iter();
        let user = named.find(|user| user.issuer.as_ref() == Some(&issuer));
        let user = user.with_context(|| {
            format!("no token of {issuer} has named {subject:?} so far; weir creates users at their first request")
        })?;
        Ok(user.user_id)
    }
}

/// Parses a budget argument.
pub(super) fn budget(text: &str) -> Result<Budget, String> {
    let expected = "a window and credits, such as day=500";
    let (window, credits) = text.split_once('=').ok_or(expected)?;
    let credits = Credits::parse(credits)
        .filter(|credits| credits.is_in_range() && *credits > Credits::ZERO)
        .ok_or("credits are a positive number with at most 6 decimals")?;
    let window = window
        .parse()
        .map_err(|windows| format!("a window is {windows}"))?;
    Ok(Budget { credits, window })
}

/// Returns budgets in words.
pub(super) fn shown(budgets: &[BudgetItem]) -> String {
    let each = budgets
        .iter()
        .map(|budget| format!("{} credits {}", budget.credits, per(budget.window)));
    each.collect::<Vec<_>>().join(", ")
}

fn per(window: BudgetWindow) -> String {
    match window {
        BudgetWindow::Total => "in total".to_owned(),
        window => format!("a {}", window.name()),
    }
}

fn print_list(UserList { users, next }: &UserList) {
    let mut table = TextTable::new(&[
        "USER",
        "PLAN",
        "SUBJECT",
        "CREATED",
        "ADMIN SINCE",
        "DISABLED",
    ]);
    for user in users {
        table.row([
            user.user_id.clone(),
            user.plan.clone(),
            optional(&user.subject),
            user.created_at.clone(),
            optional(&user.admin_since),
            optional(&user.disabled_at),
        ]);
    }
    table.print();
    if let Some(next) = next {
        eprintln!("More users exist: --after {next}");
    }
}

fn print_user(user: &UserItem) {
    let mut table = TextTable::new(&["USER", &user.user_id]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("PLAN", user.plan.clone());
    if let Some(account) = &user.account {
        row("PLAN CREDITS", account.plan_credits_remaining.to_string());
        row("BOUGHT CREDITS", account.topup_balance.to_string());
        row("AVAILABLE", account.available_credits.to_string());
        row("OWED", account.owed_credits.to_string());
        row("PAYMENT FAILED", optional(&account.payment_failed_at));
        let cycle = format!("{} to {}", account.cycle_start, account.cycle_end);
        row("CYCLE", cycle);
        for budget in &account.budgets {
            let BudgetItem {
                window,
                credits,
                left,
                ..
            } = budget;
            row("BUDGET", format!("{credits} {}, {left} left", per(*window)));
        }
    }
    row("ISSUER", optional(&user.issuer));
    row("SUBJECT", optional(&user.subject));
    row("CREATED", user.created_at.clone());
    row("ADMIN SINCE", optional(&user.admin_since));
    row("DISABLED", optional(&user.disabled_at));
    row("ERASED", optional(&user.erased_at));
    table.print();
}
