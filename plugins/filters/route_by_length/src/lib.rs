//! A filter that sends short requests to some providers and long ones to others.

pub mod route;

weir_sdk::export_filter!(route::RouteByLength);
