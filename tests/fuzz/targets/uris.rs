//! Requests a resource by other spellings of its URI.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_composite_fuzz::check("uris", data));
