//! Keeps the code names of Acme's projects in the house.

pub mod screen;

weir_sdk::export_filter!(screen::CodeNames);
