//! `weir plugin`: for who writes a plugin, or looks at one before installing it.

mod lines;
mod recording;
mod try_adapter;

use crate::config::Config;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Run an adapter on a chat request, without a server and without an upstream.
    ///
    /// Prints, a line of JSON each: what the adapter sends, {"send":{"method","path","headers","body"}}; what it is
    /// shown of a recorded answer, {"head":{"status","headers"}}; the events that it makes of it, {"event":…}; and
    /// {"wait_ms":…} where it would be asked again later. The last line is {"done":true}, or says what went wrong:
    /// {"failure":…} is the adapter's own word, {"refused":…} is a request that weir would not send, and {"error":…}
    /// anything else.
    ///
    /// No credential is needed: CREDENTIAL stands where weir would put the upstream's. Limits are those of
    /// `plugins.limits` and `limits.answer_bytes` in the configuration.
    ///
    /// Ends with 0 if the exchange went as it should, as far as there were recordings for it, and with 1 otherwise.
    Try(try_adapter::Arguments),
}

pub(super) async fn run(config: Config, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Try(arguments) => try_adapter::run(config, arguments).await,
    }
}
