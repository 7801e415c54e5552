//! Tests of the cache that look inside.
