//! The command line: one file per command.

#[macro_use]
mod output;
mod audit;
mod catalog;
mod check;
mod connection;
mod console;
mod development;
mod documents;
mod egress;
mod init;
mod key;
mod ledger;
mod lockout;
mod mcp;
mod payments;
mod plugin;
mod record;
mod serve;
mod swarm;
mod table;
mod token;
mod user;
mod user_folder;
mod voucher;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use weir_plugins::bundled::Bundle;
use weir_telemetry as telemetry;

use self::connection::Operated;
use crate::config::Config;
use weir_sandbox::compiler;

/// What the list of commands does not say.
const AFTER_HELP: &str = "Begin with `weir serve`, which prints a request that works.

Commands about keys, users, security events and plugins reach the gateway that runs on the configuration's data folder \
through its admin socket, and need no key or token. In a folder without a configuration and without a gateway's data, they reach \
the development gateway that you started last. While no gateway runs, those about keys, users and security events work on its \
database themselves if it is there, and all of them do with --offline. WEIR_LOG filters the log, as in WEIR_LOG=debug.";

/// weir: an inference gateway whose provider adapters are sandboxed WebAssembly components.
#[derive(Parser)]
#[command(version, about, max_term_width = 100, after_help = AFTER_HELP)]
struct Arguments {
    /// The configuration file; without it, weir.toml is read if it is there.
    #[arg(long, global = true, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway. Without any configuration: development mode on 127.0.0.1:8080.
    Serve(serve::Arguments),
    /// Make, list and revoke users' API keys.
    Key(Operated<key::Command>),
    /// Mint tokens of development mode's own issuer.
    #[command(subcommand)]
    Token(token::Command),
    /// Look into the ledger.
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// List and change users: their plans, credits and rights.
    User(Operated<user::Command>),
    /// See what the payment processor has told, and have what could not be applied be tried again.
    Payments(Operated<payments::Command>),
    /// Make, list and revoke vouchers: codes that users redeem for credits.
    Voucher(Operated<voucher::Command>),
    /// See and lift lockouts of addresses that failed to prove themselves.
    Lockout(Operated<lockout::Command>),
    /// Print a one-time link that signs an administrator in to the console of the gateway that runs here.
    ///
    /// The link works once, for 10 minutes, on any node behind the same database and Redis. Making it and using it are
    /// recorded, as done by local: and your uid.
    Console(console::Arguments),
    /// List security events, the newest first: who did what to users and keys, who failed to prove themselves.
    Audit(audit::Arguments),
    /// Install, activate and look at plugins.
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Record exchanges of a slot's adapter from a gateway's traffic, for another version to be tried on.
    Record(record::Arguments),
    /// Look at the tools of other MCP servers, and approve their changes.
    Mcp(mcp::Arguments),
    /// Run swarms of agents, and look at them.
    Swarm(swarm::Arguments),
    /// Print the catalog in force: models, providers, prices, and what is left out.
    Catalog(catalog::Arguments),
    /// Try the guard that tools reach the outside through.
    #[command(subcommand)]
    Egress(egress::Command),
    /// Check the configuration and say what is wrong with it.
    ///
    /// Goes on only when a step finds nothing: the first error of the file's shape (its syntax, an
    /// unknown setting, a wrong type), then all values that are out of range, then everything that is
    /// wrong with secrets and issuers, then with providers and models. `weir serve` starts on what is sound to it.
    Check(check::Arguments),
    /// Write a commented configuration, to begin with.
    Init(init::Arguments),
    /// Print what completes weir's commands in a shell, such as `weir completions bash > /etc/bash_completion.d/weir`.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write a manual page for each command into a folder, such as /usr/local/share/man/man1.
    Man {
        /// The folder, which is made where it is not there.
        folder: PathBuf,
    },
    /// Compiles a component from standard input; `weir serve` runs this.
    #[command(hide = true, name = compiler::COMMAND)]
    CompilePlugin {
        /// MiB of address space.
        memory_mib: u64,
        /// Seconds of a core, a quarter of them.
        seconds: u64,
    },
}

/// The files that the program embeds, for the commands that use them: they are the same as long as it runs.
static BUNDLE: OnceLock<&'static Bundle> = OnceLock::new();

/// Runs the command that the arguments name, with the files that the program embeds.
pub fn run(bundle: &'static Bundle) -> ExitCode {
    BUNDLE.get_or_init(|| bundle);
    let arguments = Arguments::parse();
    if let Command::CompilePlugin {
        memory_mib,
        seconds,
    } = arguments.command
    {
        return compiler::run_in_child(memory_mib, seconds);
    }
    // These need no configuration either.
    match arguments.command {
        Command::Init(arguments) => return exit_code(init::run(&arguments)),
        Command::Completions { shell } => return exit_code(documents::completions(shell)),
        Command::Man { folder } => return exit_code(documents::manual(&folder)),
        _ => {}
    }
    // A command says itself what it does.
    let level = match arguments.command {
        Command::Serve(_) => "info",
        _ => "warn",
    };
    telemetry::start(Config::log_format(arguments.config.as_deref()), level);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("weir: starting the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    // Has an exit code of its own, and as a rule needs no configuration.
    if let Command::Egress(command) = arguments.command {
        return runtime.block_on(egress::run(command, arguments.config.as_deref()));
    }
    let outcome = runtime.block_on(async {
        let file = arguments.config;
        let config = Config::load(file.as_deref())?;
        let config = match arguments.command.asks_gateway() {
            true => development::follow_link(config, file.as_deref()),
            false => config,
        };
        match arguments.command {
            Command::Serve(arguments) => serve::run(config, file, arguments).await,
            Command::Catalog(arguments) => catalog::run(config, arguments).await,
            Command::Swarm(arguments) => swarm::run(config, arguments).await,
            Command::Key(command) => key::run(config, command).await,
            Command::Token(command) => token::run(config, command).await,
            Command::User(command) => user::run(config, command).await,
            Command::Payments(command) => payments::run(config, command).await,
            Command::Voucher(command) => voucher::run(config, command).await,
            Command::Lockout(command) => lockout::run(config, command).await,
            Command::Console(arguments) => console::run(config, arguments).await,
            Command::Audit(arguments) => audit::run(config, arguments).await,
            Command::Ledger(command) => ledger::run(config, command).await,
            Command::Plugin(command) => plugin::run(config, command).await,
            Command::Record(arguments) => record::run(config, arguments).await,
            Command::Mcp(arguments) => mcp::run(config, arguments).await,
            Command::Check(arguments) => check::run(config, file, arguments).await,
            Command::Egress(_)
            | Command::Init(_)
            | Command::Completions { .. }
            | Command::Man { .. }
            | Command::CompilePlugin { .. } => unreachable!("it has been run above"),
        }
    });
    exit_code(outcome)
}

fn bundle() -> &'static Bundle {
    BUNDLE.get().expect("`run` has set it")
}

impl Command {
    /// Whether it asks a gateway that may run on another folder's data.
    fn asks_gateway(&self) -> bool {
        match self {
            Self::Key(_)
            | Self::Token(_)
            | Self::User(_)
            | Self::Payments(_)
            | Self::Voucher(_)
            | Self::Lockout(_)
            | Self::Console(_)
            | Self::Audit(_)
            | Self::Record(_)
            | Self::Mcp(_)
            | Self::Catalog(_) => true,
            Self::Swarm(arguments) => arguments.asks_gateway(),
            Self::Plugin(command) => command.asks_gateway(),
            Self::Serve(_)
            | Self::Ledger(_)
            | Self::Egress(_)
            | Self::Check(_)
            | Self::Init(_)
            | Self::Completions { .. }
            | Self::Man { .. }
            | Self::CompilePlugin { .. } => false,
        }
    }
}

fn exit_code(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome.and_then(|()| output::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: {error:#}");
            ExitCode::FAILURE
        }
    }
}
