//! Sends arbitrary requests to a stack.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_composite_fuzz::check("requests", data));
