//! A model that needs no upstream: it answers by itself, and the same request gets the same
//! answer every time.
//!
//! It is what a fresh gateway serves before anything is configured, and a bench for clients: by
//! default it repeats what it was told, and a last user message that begins with a command makes
//! it do something rarer. [`translate::HELP`] lists the commands; `/help` answers with it.
//!
//! A token is four bytes, rounded up. The input counts the texts of the messages and of the tool
//! definitions, the output every byte of text, reasoning and arguments. The output limit and stop
//! sequences are honoured, tool choices too, and after tool results it answers in text, so that
//! an agent's loop ends. Sampling settings change nothing, there being nothing to sample.
//!
//! As an agent of a swarm it fetches the page that its task is about, where it has a tool for that, and hands on what the
//! agent before it said.
//!
//! Asked for images, it makes a small one of each prompt; asked for vectors or an order of documents, it compares words. It
//! speaks in silence, and hears no recording.

mod agent;
mod audio;
mod image;
mod retrieval;
pub mod translate;

weir_sdk::export_adapter!(translate::Demo);
