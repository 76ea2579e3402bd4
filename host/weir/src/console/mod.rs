//! The console: pages on which users see and change what is theirs, and administrators what is the gateway's.
//!
//! Plain HTML from templates (`host/weir/templates/console`), one stylesheet, and two scripts: htmx, and a small one of our
//! own. No page needs a script but to follow what goes on. Each handler calls what the route of the API calls for the same,
//! so that a page shows the API's facts, refuses in its words, and counts under its limits.
//!
//! - [`router`]: every route; [`session`]: who is signed in ([`session::ConsoleUser`], [`session::ConsoleAdmin`]);
//!   [`form`]: what forms bring, and that no other site has sent it.
//! - [`frame`]: what all pages have around them; [`respond`]: how pages, redirects and errors are answered.
//! - [`format`]: numbers, credits and times as people read them; [`chart`]: charts as inline SVG; [`assets`]: files.
//! - [`admin`]: what administrators see and change.
//! - the others are pages, one file for those of a section.
//!
//! **Invariant:** only the console's own cookie opens it, and nothing else is opened by that.
//! **Invariant:** what changes anything is a `POST` that carries the session's form token and comes from the console's own
//! pages ([`form::ConsoleForm`]); after it, the browser is sent to a page ([`session::ConsoleUser::go`]), so that reloading
//! repeats nothing. It says there what was done.
//! **Invariant:** a page holds nothing that its policy ([`respond`]) would not let work: no inline script, no `style`
//! attribute, no address of another site.
//!
//! To add a page: a file here with its handlers and its `#[derive(Template)]` struct, whose field `frame` is
//! [`session::ConsoleUser::frame`] and whose template extends `console/layout.html`; its routes in [`router`]; its place in the
//! navigation in [`frame`], where administrators' pages have a list of their own. A form has `{{ frame.form_token() }}` in a
//! hidden field `form_token`; its handler takes a [`form::ConsoleForm`] (administrators': [`form::AdminForm`]) as its last
//! argument. What the domain refuses is shown on the same page ([`form::Refused`]), beside the field that it names.

mod admin;
mod assets;
mod chart;
mod docs;
mod form;
mod format;
mod frame;
mod keys;
mod money;
mod overview;
mod requests;
mod respond;
pub mod router;
mod session;
mod sign_in;
mod snippets;
mod swarms;
mod usage;
mod welcome;
