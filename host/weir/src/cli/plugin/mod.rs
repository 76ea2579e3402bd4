//! `weir plugin`: arguments of the commands of plugin authors and of operators.
//!
//! Each command of an author calls one function of [`weir_author`] and prints the result. The commands of operators
//! ([`manage`], [`upload`]) stay here, because they use the connection of the command line to a gateway.

use weir_app::config::Config;

mod build;
mod check;
mod compare;
mod input;
mod manage;
mod new;
mod push;
mod signing;
mod try_plugin;
mod upload;

pub(super) use manage::span;

#[derive(clap::Subcommand)]
pub(super) enum PluginCommand {
    /// Run an adapter or a filter on a request, or a tool on arguments, without a gateway and without a provider.
    ///
    /// The output has one line of JSON for each step. An adapter's lines are its request,
    /// {"send":{"method","path","headers","body"}}; the part of a recorded response that the adapter sees,
    /// {"head":{"status","headers"}}; its events, {"event":…}; and the waits that it asks for, {"wait_ms":…}. The last line is
    /// {"done":true} or an error: {"failure":…} is the adapter's own failure, {"refused":…} is a request that weir would not send,
    /// and {"error":…} is any other error.
    ///
    /// A tool's lines are its requests, {"fetch":{"method","url","headers","body","credential"}}; the part of a recorded response
    /// that the tool sees, {"head":…}; and its result, {"result":…} or {"failure":…}. The policy of a slot does not apply.
    ///
    /// A filter's lines are its verdict, {"verdict":{"change","upstreams","annotations","answer"}} or
    /// {"refusal":{"why","param"}}. With --events, the filter sees a response event by event, and the lines of its events follow:
    /// {"event":…}, and {"done":true}, or {"stopped":true} if the filter ends the response.
    ///
    /// Output of the component goes to standard error. Compiled code is kept in the user's cache folder.
    ///
    /// Only --record needs a credential; otherwise the word CREDENTIAL stands in its place. The limits are `plugins.limits` and
    /// `limits.answer_bytes` of the configuration.
    ///
    /// The exit code is 0 if the exchange succeeds or waits for a response that is not recorded, and 1 otherwise.
    Try(try_plugin::TryPluginArguments),
    /// Create a project for a plugin. The project builds without changes.
    New(new::NewPluginArguments),
    /// Build the project of a plugin, with the tools of its language, to dist/NAME.wasm. Missing tools are installed into the project.
    Build(build::BuildPluginArguments),
    /// Print the contract between weir and its plugins as one WIT file.
    Wit,
    /// Check a component with the load steps of a gateway and with further tests.
    ///
    /// An adapter runs on weir's own requests, on recorded responses of its provider's dialect, and on broken responses. A filter runs
    /// on weir's own requests and on the events of a response. Every plugin runs on its author's recordings. weir cuts each response
    /// in many ways and runs each exchange twice; the output must not change. The last check measures the cost.
    ///
    /// The exit code is 1 if a check fails.
    Check(check::CheckPluginArguments),
    /// Run two versions of a plugin on recorded exchanges, and print the differences.
    ///
    /// The comparison covers the requests, field by field and byte by byte; the events; the reported usage; and, with --price, the price
    /// of the usage. The exit code is 1 if the versions differ.
    Compare(compare::ComparePluginsArguments),
    /// Create the keys of a publisher: write the private key to a file, and print the public key.
    Keygen(signing::Keygen),
    /// Sign a component for one slot, into FILE.sig.
    ///
    /// The component itself describes its kind and version; weir compiles it to read them. The version must be a Semantic Version, such
    /// as 1.4.0.
    Sign(signing::Sign),
    /// Verify the signature of a component with the publishers of the configuration, or with a public key.
    Verify(signing::Verify),
    /// Push a component and its signature to an OCI registry. `install` and other tools can pull it.
    ///
    /// The output is the reference with the digest. Credentials come from `docker login` or similar tools: from $REGISTRY_AUTH_FILE, or
    /// config.json in $DOCKER_CONFIG or ~/.docker, and from the credential helpers in that file.
    Push(push::Push),
    /// Install a component in a slot of a gateway, ready to be activated. With --activate, the slot serves with it.
    ///
    /// The component comes from a file or from an OCI registry. This command, not the gateway, contacts the registry, with the credentials
    /// of `push`. A reference with @sha256:DIGEST always names the same artifact, even if its tag moves.
    Install(manage::InstallArguments),
    /// List the slots of a gateway and their active components.
    List(manage::GatewayArguments),
    /// Show a slot, the figures of its canary, and its components.
    Show(manage::ShowSlotArguments),
    /// Activate a component that is installed in a slot or embedded in weir.
    ///
    /// Running requests end on the component that they began with; none fails or waits. The activation ends a canary of the slot, or
    /// promotes it if it is the activated component.
    Activate(manage::ActivateArguments),
    /// End the canary of a slot. Without a canary, return the slot to its previous component.
    Rollback(manage::RollbackArguments),
    /// Set the lowest version of a slot, and the effect of a quarantine on it.
    ///
    /// An omitted option returns to its default.
    Policy(manage::PolicyArguments),
    /// Remove a component that is not active in its slot.
    Remove(manage::ComponentArguments),
    /// List the events of slots, newest first: the time, the event, and its actor.
    Events(manage::EventsArguments),
}

impl PluginCommand {
    /// Tells whether the command contacts a gateway.
    pub(super) fn asks_gateway(&self) -> bool {
        matches!(
            self,
            Self::Install(_)
                | Self::List(_)
                | Self::Show(_)
                | Self::Activate(_)
                | Self::Rollback(_)
                | Self::Policy(_)
                | Self::Remove(_)
                | Self::Events(_)
        )
    }
}

pub(super) async fn run(config: Config, command: PluginCommand) -> anyhow::Result<()> {
    match command {
        PluginCommand::Try(arguments) => try_plugin::run(config, arguments).await,
        PluginCommand::New(arguments) => new::run(arguments),
        PluginCommand::Build(arguments) => build::run(&arguments),
        PluginCommand::Wit => {
            print!("{}", weir_author::new::contract());
            Ok(())
        }
        PluginCommand::Check(arguments) => check::run(config, arguments).await,
        PluginCommand::Compare(arguments) => compare::run(config, arguments).await,
        PluginCommand::Keygen(keygen) => signing::keygen(&keygen),
        PluginCommand::Sign(sign) => signing::sign(&config, sign).await,
        PluginCommand::Verify(verify) => signing::verify(&config, &verify),
        PluginCommand::Push(push) => push::push(&config, push).await,
        PluginCommand::Install(install) => manage::install(&config, install).await,
        PluginCommand::List(gateway) => manage::list(&config, gateway).await,
        PluginCommand::Show(show) => manage::show(&config, show).await,
        PluginCommand::Activate(activate) => manage::activate(&config, activate).await,
        PluginCommand::Rollback(rollback) => manage::roll_back(&config, rollback).await,
        PluginCommand::Policy(policy) => manage::set_policy(&config, policy).await,
        PluginCommand::Remove(named) => manage::remove(&config, named).await,
        PluginCommand::Events(events) => manage::events(&config, events).await,
    }
}
