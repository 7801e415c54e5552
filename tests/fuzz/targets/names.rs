//! Combines arbitrary backends, prefixes, aliases and patterns.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_composite_fuzz::check("names", data));
