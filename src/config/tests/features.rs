//! Sections that need a feature.

use crate::config::Config;

/// Tests of `.ci/features` run without these features.
#[test]
fn section_without_its_feature_is_an_error() {
    let sections = [
        ("http", cfg!(feature = "http"), "[auth]\ntokens = [{ token = \"t\", caller = \"c\" }]"),
        ("http", cfg!(feature = "http"), "[caller]\nheader = \"x-user\""),
        ("redis", cfg!(feature = "redis"), "[redis]\nurl = \"redis://127.0.0.1\""),
        ("cache", cfg!(feature = "cache"), "[[cache]]\ntools = [\"*\"]\nttl = \"1m\""),
    ];
    for (feature, is_built, text) in sections {
        let errors = Config::from_toml_str(text).err().map(|error| error.to_string());
        let is_missed = errors
            .unwrap_or_default()
            .contains(&format!("needs a build with the feature `{feature}`"));
        assert_eq!(is_missed, !is_built, "{text}");
    }
}
