//! Returns arbitrary lists, schemas and results from a server.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_composite_fuzz::check("replies", data));
