//! The console: pages on which users see and change their own data, and administrators the gateway's.
//!
//! Plain HTML from templates (`host/console/templates/console`), one stylesheet, and two scripts: htmx, and a small one of
//! our own; pages with charts add uPlot. Pages need a script only for live updates. Each handler calls the same function as the API's route, so that
//! a page shows the API's facts, reports its errors, and counts under its limits.
//!
//! - [`router`]: every route; [`session`]: the signed-in user ([`session::ConsoleUser`], [`session::ConsoleAdmin`]);
//!   [`form`]: form fields, and the protection against forms of other sites.
//! - [`frame`]: the frame around all pages; [`respond`]: pages, redirects and error responses.
//! - [`format`]: numbers, credits and times in a readable form; [`chart`]: charts as inline SVG; [`plot`]:
//!   charts over time, which uPlot draws; [`assets`]: files.
//! - [`admin`]: the administrators' pages.
//! - the remaining modules are pages, one file for each section.
//!
//! **Invariant:** only the console's own cookie opens the console, and the cookie opens nothing else.
//! **Invariant:** each change is a `POST` with the session's form token from the console's own pages
//! ([`form::ConsoleForm`]). The response redirects the browser to a page with a notice ([`session::ConsoleUser::go`]),
//! so that a reload repeats nothing.
//! **Invariant:** a page contains only elements that its policy ([`respond`]) allows: no inline script, no `style`
//! attribute, no address of another site.
//!
//! To add a page: a file here with its handlers and its `#[derive(Template)]` struct, whose field `frame` is
//! [`session::ConsoleUser::frame`] and whose template extends `console/layout.html`; its routes in [`router`]; its
//! place in the navigation in [`frame`], which has a separate list for administrators. A form has `{{
//! frame.form_token() }}` in a hidden field `form_token`; its handler takes a [`form::ConsoleForm`] (administrators':
//! [`form::AdminForm`]) as its last argument. The same page shows errors ([`form::FormError`]) beside the fields that
//! they name.

mod admin;
mod assets;
mod chart;
mod content;
mod docs;
mod form;
mod format;
mod frame;
mod issuers;
mod keys;
mod money;
mod organisations;
mod overview;
mod playground;
mod plot;
mod requests;
mod respond;
pub mod router;
mod session;
mod sign_in;
mod snippets;
mod swarms;
mod usage;
mod welcome;
