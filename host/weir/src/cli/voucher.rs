//! `weir voucher`: codes that users redeem for credits.

use anyhow::anyhow;
use weir_accounts::vouchers;
use weir_accounts::vouchers::admin::{CreatedVoucher, DAYS, VoucherList, VoucherRequest};
use weir_app::config::Config;
use weir_identity::pepper::Peppers;
use weir_ledger::Credits;
use weir_request::audit::Actor;
use weir_storage::database::DatabaseClock;

use super::connection::{
    AdminConnection, GatewayAnswer, OperatorCommand, RequiredParts, operate, path,
};
use super::table::TextTable;

#[derive(clap::Subcommand)]
pub(super) enum VoucherCommand {
    /// Create a voucher and print its code, once.
    Create {
        /// Top-up credits for each account that redeems it, such as 5000 or 0.5.
        #[arg(long, value_parser = credits)]
        credits: Credits,
        /// Number of accounts that may redeem the voucher.
        #[arg(long, default_value_t = 1)]
        uses: i64,
        /// Days until the voucher expires, at most 366.
        #[arg(long, value_name = "DAYS", default_value_t = DAYS)]
        expires_in_days: i64,
        /// The voucher's name in lists.
        #[arg(long, default_value = "")]
        name: String,
        /// Print the voucher with its code as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List vouchers, newest first, without their codes.
    List {
        /// Maximum number of vouchers, up to 1000.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Continue before the voucher with this id.
        #[arg(long, value_name = "ID")]
        before: Option<String>,
        /// Print the gateway's response as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a voucher: no account can redeem it any more. Redeemed credits stay.
    Revoke {
        /// The voucher's id, such as vou_…: see `weir voucher list`.
        #[arg(value_name = "ID")]
        voucher: String,
    },
}

pub(super) async fn run(
    config: Config,
    operated: OperatorCommand<VoucherCommand>,
) -> anyhow::Result<()> {
    let OperatorCommand { command, offline } = operated;
    let operated = operate(
        &config,
        RequiredParts::Stores,
        offline,
        async |connection| match command {
            VoucherCommand::Create {
                credits,
                uses,
                expires_in_days,
                name,
                json,
            } => {
                let request = VoucherRequest {
                    credits,
                    uses,
                    expires_in_days,
                    name,
                };
                let created = create(&config, connection, request).await?;
                if json {
                    println!("{}", serde_json::to_string_pretty(&created)?);
                    return Ok(());
                }
                println!("{}", created.code);
                eprintln!(
                    "Created {}: {} credits for each of {} accounts, until {}. The code is not shown again.",
                    created.voucher_id, created.credits, created.uses, created.expires_at
                );
                Ok(())
            }
            VoucherCommand::List {
                limit,
                before,
                json,
            } => {
                let query = [("limit", Some(limit.to_string())), ("before", before)];
                let vouchers = path(&["admin", "vouchers"], &query);
                connection.get(&vouchers).await?.show(json, print);
                Ok(())
            }
            VoucherCommand::Revoke { voucher } => {
                connection
                    .delete(&path(&["admin", "vouchers", &voucher], &[]))
                    .await?;
                println!("Revoked {voucher}.");
                Ok(())
            }
        },
    );
    operated.await
}

fn credits(text: &str) -> Result<Credits, &'static str> {
    Credits::parse(text).ok_or("a number with at most 6 decimals")
}

async fn create(
    config: &Config,
    connection: &AdminConnection,
    request: VoucherRequest,
) -> anyhow::Result<CreatedVoucher> {
    let Some(core) = connection.core() else {
        let request = serde_json::to_value(request)?;
        let created: GatewayAnswer<CreatedVoucher> =
            connection.post("/admin/vouchers", &request).await?;
        return Ok(created.parsed);
    };
    config.check_mode()?;
    let told = |error: weir_errors::ApiError| match error.param() {
        Some(field) => anyhow!("{field}: {}", error.message()),
        None => anyhow!("{}", error.message()),
    };
    let new = request.read().map_err(told)?;
    let peppers = Peppers::read(&config.api_key_peppers, &config.own_pepper())?;
    peppers.compare(&core.database).await?;
    let clock = DatabaseClock::start(core.database.clone(), core.clock.clone()).await?;
    let now = clock.now();
    let made = vouchers::create(core, &peppers, new, now, &Actor::myself()).await;
    let (voucher, code) = made.map_err(told)?;
    connection.say_where();
    Ok(CreatedVoucher::new(voucher, &code))
}

fn print(VoucherList { vouchers, next }: &VoucherList) {
    let mut table = TextTable::new(&[
        "VOUCHER", "NAME", "CREDITS", "USES", "REDEEMED", "STATE", "CREATED", "BY", "EXPIRES",
    ]);
    for voucher in vouchers {
        table.row([
            voucher.voucher_id.clone(),
            voucher.name.clone(),
            voucher.credits.to_string(),
            voucher.uses.to_string(),
            voucher.redeemed.to_string(),
            voucher.state.clone(),
            voucher.created_at.clone(),
            voucher.created_by.clone(),
            voucher.expires_at.clone(),
        ]);
    }
    table.print();
    if let Some(next) = next {
        eprintln!("More vouchers exist: --before {next}");
    }
}
