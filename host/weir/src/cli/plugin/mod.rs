//! `weir plugin`: arguments of the commands of plugin authors and of operators.
//!
//! Each command of an author calls one function of [`weir_author`] and prints the result. The commands of operators
//! ([`manage`], [`upload`]) stay here, because they use the connection of the command line to a gateway.

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

use crate::config::Config;

#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Run an adapter or a filter on a request, or a tool on arguments, without a server and without an upstream.
    ///
    /// Of a tool it prints what it asks for, {"fetch":{"method","url","headers","body","credential"}}, what it is shown of a
    /// recorded answer, {"head":…}, and what its model is given, {"result":…} or {"failure":…}. Its slot's policy is not
    /// applied. Of a filter it prints its verdict, {"verdict":{"change","upstreams","annotations","answer"}} or
    /// {"refusal":{"why","param"}}, and with --events what it makes of an answer that comes event by event: {"event":…}, and
    /// {"done":true}, or {"stopped":true} where it ends the answer. Of an adapter:
    ///
    /// Prints, a line of JSON each: what the adapter sends, {"send":{"method","path","headers","body"}}; what it is
    /// shown of a recorded answer, {"head":{"status","headers"}}; the events that it makes of it, {"event":…}; and
    /// {"wait_ms":…} where it would be asked again later. The last line is {"done":true}, or says what went wrong:
    /// {"failure":…} is the adapter's own word, {"refused":…} is a request that weir would not send, and {"error":…}
    /// anything else.
    ///
    /// Standard error has what the component writes to its own, and to standard output. Compiled code is kept in the user's
    /// cache folder.
    ///
    /// No credential is needed but to record: CREDENTIAL stands where weir would put the upstream's. Limits are those of
    /// `plugins.limits` and `limits.answer_bytes` in the configuration.
    ///
    /// Ends with 0 if the exchange went as it should, as far as there were recordings for it, and with 1 otherwise.
    Try(try_plugin::Arguments),
    /// Make a project for a plugin of your own, which builds at once.
    New(new::Arguments),
    /// Build a plugin's project: writes dist/NAME.wasm, with its language's own tools, which it installs into the project.
    Build(build::Arguments),
    /// Print the contract between weir and its plugins as one WIT file.
    Wit,
    /// Check a component as a gateway will, and more: all that its author wants to know before.
    ///
    /// Runs the load steps; then an adapter on the requests and recorded answers that weir's own are held to, those of its
    /// upstream's dialect where weir has any, on answers that are none; a filter on those requests, and on an answer's events;
    /// and any plugin on recordings of its author's. Each answer is cut in many ways and each exchange run twice, which must not change a byte. Ends with what it costs, and
    /// with 1 if a check failed.
    Check(check::Arguments),
    /// Run two versions of a plugin on recorded exchanges, and print what the second does otherwise.
    ///
    /// Compared are the requests, field by field and as they are written, the events, the usage that is reported, and with
    /// --price what that costs. Ends with 1 if anything differs.
    Compare(compare::Arguments),
    /// Make a publisher's key: the private one goes to a file, the public one is printed.
    Keygen(signing::Keygen),
    /// Sign a component, for one slot, into FILE.sig.
    ///
    /// What it is and which version is read from the component, which is compiled and asked for that. The version must be
    /// one by Semantic Versioning, such as 1.4.0.
    Sign(signing::Sign),
    /// Check a component's signature against the publishers of the configuration, or against a public key.
    Verify(signing::Verify),
    /// Push a component to an OCI registry, with its signature, from where `install` and other tools fetch it.
    ///
    /// Prints where it lies, by its digest. Credentials are those of `docker login` and the like: from $REGISTRY_AUTH_FILE, or
    /// config.json in $DOCKER_CONFIG or ~/.docker, and the helpers that it names.
    Push(push::Push),
    /// Have a gateway check a component and keep it, ready to be activated; or with --activate, serve with it.
    ///
    /// From a file, or from an OCI registry, which this command asks, with the credentials that `push` has, and not the
    /// gateway. A reference with @sha256:DIGEST means that artifact and no other, whatever its tag means by now.
    Install(manage::Install),
    /// List a gateway's slots, and what serves in each.
    List(manage::Gateway),
    /// Show a slot, how its canary compares, and all that could serve in it.
    Show(manage::Show),
    /// Have a slot serve with a component that is installed in it, or that the binary brings.
    ///
    /// Requests under way end on the component that they began with; none fails or waits. A canary of the slot ends with it, or
    /// is promoted if it is that one.
    Activate(manage::Activate),
    /// End a slot's canary; or, without one, have the slot serve with what it served with before.
    Rollback(manage::Rollback),
    /// Set the lowest version that a slot serves with, and what becomes of it if its component is put into quarantine.
    ///
    /// What is left out is back to its default.
    Policy(manage::Policy),
    /// Remove a component that its slot does not serve with.
    Remove(manage::Named),
    /// List what has happened to slots, the newest first: what, when, by whom.
    Events(manage::Events),
}

impl Command {
    /// Whether it asks a gateway.
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

pub(super) async fn run(config: Config, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Try(arguments) => try_plugin::run(config, arguments).await,
        Command::New(arguments) => new::run(arguments),
        Command::Build(arguments) => build::run(&arguments),
        Command::Wit => {
            print!("{}", weir_author::new::contract());
            Ok(())
        }
        Command::Check(arguments) => check::run(config, arguments).await,
        Command::Compare(arguments) => compare::run(config, arguments).await,
        Command::Keygen(keygen) => signing::keygen(&keygen),
        Command::Sign(sign) => signing::sign(&config, sign).await,
        Command::Verify(verify) => signing::verify(&config, &verify),
        Command::Push(push) => push::push(&config, push).await,
        Command::Install(install) => manage::install(&config, install).await,
        Command::List(gateway) => manage::list(&config, gateway).await,
        Command::Show(show) => manage::show(&config, show).await,
        Command::Activate(activate) => manage::activate(&config, activate).await,
        Command::Rollback(rollback) => manage::roll_back(&config, rollback).await,
        Command::Policy(policy) => manage::set_policy(&config, policy).await,
        Command::Remove(named) => manage::remove(&config, named).await,
        Command::Events(events) => manage::events(&config, events).await,
    }
}
