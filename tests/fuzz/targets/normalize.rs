//! Reads arbitrary output of a model.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_composite_fuzz::check("normalize", data));
