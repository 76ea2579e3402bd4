//! The arguments of `weir swarm`.

use std::path::PathBuf;

use crate::cli::connection::OfflineArgument;

#[derive(clap::Args)]
pub(in crate::cli) struct SwarmArguments {
    #[command(flatten)]
    pub(super) gateway: SwarmGateway,
    #[command(subcommand)]
    pub(super) command: SwarmCommand,
}

impl SwarmArguments {
    /// Returns whether the command needs the gateway on this machine for its address or its key.
    pub(in crate::cli) fn asks_gateway(&self) -> bool {
        self.gateway.url.is_none() || self.gateway.key_file.is_none()
    }
}

#[derive(clap::Args)]
pub(super) struct SwarmGateway {
    /// The gateway's public URL. Default: the gateway on this machine; with --key-file, the address that this
    /// configuration listens on.
    #[arg(long, value_name = "URL", global = true)]
    pub(super) url: Option<String>,
    /// Act as an operator on all users' swarms, through the gateway's admin socket, without a key. Works for list and
    /// cancel.
    #[arg(long, global = true, conflicts_with_all = ["url", "key_file"])]
    pub(super) operator: bool,
    #[command(flatten)]
    pub(super) offline: OfflineArgument,
    /// A file with the user's API key. Default: in development mode, the key that `weir serve` prints; weir sends it
    /// only to that gateway.
    #[arg(long, value_name = "FILE", env = "WEIR_API_KEY_FILE", global = true)]
    pub(super) key_file: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
pub(super) enum SwarmCommand {
    /// Run a swarm, show its progress, and print its last output.
    ///
    /// In a terminal, weir draws the agents as they work; otherwise it prints events as lines on standard error. After
    /// Ctrl-C the swarm continues. NO_COLOR disables colours.
    Run {
        /// A file with the swarm, in the format of POST /swarms.
        #[arg(value_name = "FILE", required_unless_present = "template")]
        file: Option<PathBuf>,
        /// A template to use instead of a file, such as "Content Pipeline".
        #[arg(long, value_name = "NAME", conflicts_with = "file")]
        template: Option<String>,
        /// Additional context for the first agent.
        #[arg(long, value_name = "TEXT")]
        context: Option<String>,
    },
    /// List swarms, newest first.
    List {
        /// Maximum number of swarms, up to 1000.
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Continue before the swarm with this id.
        #[arg(long, value_name = "ID")]
        before: Option<String>,
        /// List only this user's swarms; requires --operator.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// List only queued and running swarms; requires --operator.
        #[arg(long)]
        open: bool,
    },
    /// Print a swarm with its agents' results, as JSON.
    Show {
        /// The swarm's id: see `weir swarm list`.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Cancel a swarm; it ends within two seconds.
    Cancel {
        /// The swarm's id.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Let a swarm that stopped go on from the agent at which it stopped.
    Resume {
        /// The swarm's id.
        #[arg(value_name = "ID")]
        id: String,
        /// Maximum cost of the swarm in credits, including its cost until now. Default: as before.
        #[arg(long, value_name = "CREDITS")]
        budget: Option<f64>,
    },
    /// Delete a finished swarm with all its data.
    Delete {
        /// The swarm's id.
        #[arg(value_name = "ID")]
        id: String,
    },
}
