//! The command line: one file per command.

#[macro_use]
mod output;
mod audit;
mod bundle;
mod catalog;
mod check;
mod connection;
mod console;
mod development;
mod documents;
mod egress;
mod import;
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
mod version;
mod voucher;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use weir_app::config::Config;
use weir_plugins::bundled::Bundle;
use weir_sandbox::compiler;
use weir_telemetry as telemetry;
use weir_upstream::file_reader;

use self::connection::OperatorCommand;

/// Help text after the list of commands.
const AFTER_HELP: &str = "Start with `weir serve`: it prints a working example request.

Commands about keys, users, security events and plugins contact the gateway that runs on the configuration's data folder \
through its admin socket, and need no key or token. In a folder without a configuration and a gateway's data, they contact \
the development gateway that you started last. While no gateway runs, commands about keys, users and security events change \
the database directly if it exists; with --offline, all commands do. WEIR_LOG filters the log, as in WEIR_LOG=debug.";

/// weir: an inference gateway whose provider adapters are sandboxed WebAssembly components.
#[derive(Parser)]
#[command(version, about, max_term_width = 100, after_help = AFTER_HELP)]
struct WeirArguments {
    /// The configuration file. Default: weir.toml if it exists.
    #[arg(long, global = true, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: WeirCommand,
}

#[derive(Subcommand)]
enum WeirCommand {
    /// Run the gateway. Without a configuration: development mode on 127.0.0.1:8080.
    Serve(serve::ServeArguments),
    /// Create, list and revoke users' API keys.
    Key(OperatorCommand<key::KeyCommand>),
    /// Mint tokens of development mode's local issuer.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Verify the ledger, print statements and archive old entries.
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// List and change users: their plans, credits and rights.
    User(OperatorCommand<user::UserCommand>),
    /// List payment webhooks and retry failed ones.
    Payments(OperatorCommand<payments::PaymentsCommand>),
    /// Create, list and revoke vouchers: codes that users redeem for credits.
    Voucher(OperatorCommand<voucher::VoucherCommand>),
    /// List and end lockouts of addresses after failed authentications.
    Lockout(OperatorCommand<lockout::LockoutCommand>),
    /// Print a one-time link that signs an administrator in to the console of the gateway on this machine.
    ///
    /// The link works once, for 10 minutes, on any node with the same database and Redis. The audit log records its
    /// creation and its use, with the actor local:UID.
    Console(console::ConsoleArguments),
    /// List security events, newest first: changes of users and keys, and failed authentications.
    Audit(audit::AuditArguments),
    /// Install, activate and inspect plugins.
    #[command(subcommand)]
    Plugin(Box<plugin::PluginCommand>),
    /// Record exchanges of a slot's adapter from a gateway's traffic, to test another version with them.
    Record(record::RecordArguments),
    /// List the tools of remote MCP servers, and approve their changes.
    Mcp(mcp::McpArguments),
    /// Run, list and cancel swarms of agents.
    Swarm(swarm::SwarmArguments),
    /// Print the active catalog: models, providers, prices, and the models and providers that are left out; compare it
    /// with public price files.
    Catalog(catalog::CatalogArguments),
    /// Test the egress guard, through which tools reach other hosts.
    #[command(subcommand)]
    Egress(egress::EgressCommand),
    /// Check the configuration and list its errors.
    ///
    /// Each step runs only if the step before found no error: first the file's shape (its syntax, an unknown setting, a
    /// wrong type; only the first error), then all values that are out of range, then all errors about secrets and
    /// issuers, then all errors about providers and models. `weir serve` starts on each configuration that passes.
    Check(check::CheckConfigArguments),
    /// Write a configuration from that of another gateway.
    #[command(subcommand)]
    Import(import::ImportCommand),
    /// Write a first configuration with comments.
    Init(init::InitArguments),
    /// Print a script that completes weir's commands in a shell, such as `weir completions bash >
    /// /etc/bash_completion.d/weir`.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the version and the commit of this program, or its bill of materials.
    Version(version::VersionArguments),
    /// Write a manual page for each command into a folder, such as /usr/local/share/man/man1.
    Man {
        /// The folder; weir creates it if it does not exist.
        folder: PathBuf,
    },
    /// Compiles a component from standard input; `weir serve` runs this command.
    #[command(hide = true, name = compiler::COMMAND)]
    CompilePlugin {
        /// MiB of address space.
        memory_mib: u64,
        /// Seconds of processor time of all threads together.
        seconds: u64,
    },
    /// Reads the lengths of files from standard input; `weir serve` runs this command.
    #[command(hide = true, name = file_reader::COMMAND)]
    ReadFiles {
        /// The kind of the files.
        kind: String,
    },
}

/// Runs the command that the arguments name, with the files that the program embeds.
pub fn run(bundle: &'static Bundle) -> ExitCode {
    bundle::set(bundle);
    let arguments = WeirArguments::parse();
    if let WeirCommand::CompilePlugin {
        memory_mib,
        seconds,
    } = arguments.command
    {
        return compiler::run_in_child(memory_mib, seconds);
    }
    if let WeirCommand::ReadFiles { kind } = &arguments.command {
        return file_reader::run_in_child(kind);
    }
    // These commands need no configuration.
    match arguments.command {
        WeirCommand::Init(arguments) => return exit_code(init::run(&arguments)),
        WeirCommand::Completions { shell } => {
            return exit_code(documents::completions(&WeirArguments::command(), shell));
        }
        WeirCommand::Version(arguments) => return exit_code(version::run(&arguments)),
        WeirCommand::Man { folder } => {
            return exit_code(documents::manual(WeirArguments::command(), &folder));
        }
        _ => {}
    }
    // A command prints its own result.
    let level = match arguments.command {
        WeirCommand::Serve(_) => "info",
        _ => "warn",
    };
    let log_format = Config::log_format(arguments.config.as_deref());
    let started = telemetry::start(log_format, level).and_then(|guard| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime
            .enable_all()
            .on_thread_park(crate::memory::return_free_memory);
        Ok((guard, runtime.build()?))
    });
    let (log, runtime) = match started {
        Ok(started) => started,
        Err(error) => {
            eprintln!("weir: cannot start the log or the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The command has its own exit codes, and usually needs no configuration.
    if let WeirCommand::Egress(command) = arguments.command {
        return runtime.block_on(egress::run(command, arguments.config.as_deref()));
    }
    // The command writes the configuration that others read.
    if let WeirCommand::Import(command) = arguments.command {
        return exit_code(runtime.block_on(import::run(command)));
    }
    let outcome = runtime.block_on(async {
        let file = arguments.config;
        let config = Config::load(file.as_deref())?;
        let config = match arguments.command.asks_gateway() {
            true => development::follow_link(config, file.as_deref()),
            false => config,
        };
        match arguments.command {
            WeirCommand::Serve(arguments) => serve::run(config, file, arguments).await,
            WeirCommand::Catalog(arguments) => catalog::run(config, file, arguments).await,
            WeirCommand::Swarm(arguments) => swarm::run(config, arguments).await,
            WeirCommand::Key(command) => key::run(config, command).await,
            WeirCommand::Token(command) => token::run(config, command).await,
            WeirCommand::User(command) => user::run(config, command).await,
            WeirCommand::Payments(command) => payments::run(config, command).await,
            WeirCommand::Voucher(command) => voucher::run(config, command).await,
            WeirCommand::Lockout(command) => lockout::run(config, command).await,
            WeirCommand::Console(arguments) => console::run(config, arguments).await,
            WeirCommand::Audit(arguments) => audit::run(config, arguments).await,
            WeirCommand::Ledger(command) => ledger::run(config, command).await,
            WeirCommand::Plugin(command) => plugin::run(config, *command).await,
            WeirCommand::Record(arguments) => record::run(config, arguments).await,
            WeirCommand::Mcp(arguments) => mcp::run(config, arguments).await,
            WeirCommand::Check(arguments) => check::run(config, file, arguments).await,
            WeirCommand::Egress(_)
            | WeirCommand::Import(_)
            | WeirCommand::Init(_)
            | WeirCommand::Completions { .. }
            | WeirCommand::Version(_)
            | WeirCommand::Man { .. }
            | WeirCommand::CompilePlugin { .. }
            | WeirCommand::ReadFiles { .. } => unreachable!("it has been run above"),
        }
    });
    drop(runtime);
    match outcome.and_then(|()| output::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // By the log's thread: a reader of a gateway's log that stops reading must not delay the gateway's end.
            log.print(&format!("weir: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

impl WeirCommand {
    /// Returns whether the command contacts a gateway that may run on another folder's data.
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
            | Self::Mcp(_) => true,
            Self::Catalog(arguments) => arguments.asks_gateway(),
            Self::Swarm(arguments) => arguments.asks_gateway(),
            Self::Plugin(command) => command.asks_gateway(),
            Self::Serve(_)
            | Self::Ledger(_)
            | Self::Egress(_)
            | Self::Check(_)
            | Self::Import(_)
            | Self::Init(_)
            | Self::Completions { .. }
            | Self::Version(_)
            | Self::Man { .. }
            | Self::CompilePlugin { .. }
            | Self::ReadFiles { .. } => false,
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
