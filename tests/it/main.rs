//! weir's integration tests: one binary, a module for each feature, over real sockets and real Wasm.

mod chat;
mod cli;
mod code_cache;
mod destination;
mod errors;
mod fairness;
mod hang_up;
mod health;
mod hostile;
mod idempotency;
mod identity;
mod keys;
mod ledger;
mod models;
mod openai;
mod retries;
mod sdk;
mod service;
mod splits;
mod stores;
mod tidy;
mod timeouts;
mod tokens;
