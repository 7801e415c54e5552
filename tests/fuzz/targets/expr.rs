//! Parses and evaluates arbitrary expressions.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_composite_fuzz::check("expr", data));
