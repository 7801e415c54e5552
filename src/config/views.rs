//! The `[[views]]` section, which defines views of the same backends with other layers and
//! composites.

use std::collections::HashSet;

use serde::{Deserialize, de::IgnoredAny};

use super::{
    AuthConfig, AuthMethod,
    advertise::AdvertiseTable,
    aliases::AliasTable,
    auth,
    budget::BudgetTable,
    cache::CacheTable,
    composite_tools,
    filter::FilterTable,
    limits::LimitsTable,
    progress::ProgressTable,
    read::{Reader, VIEWS},
    redactions::RedactionTable,
    sections::{Layers, Sections, Shared},
    source::sanitized,
    truncate::{ResultsTable, TruncateTable},
    validate::ValidateTable,
};
use crate::composite::{CompositeTool, Segment};

/// The maximum number of views in a configuration file.
const MAX_VIEWS: usize = 100;
/// Reserved first segments of URL paths. The path of a view must not begin with one of them,
/// because the server uses these paths for its own endpoints.
const RESERVED: [&str; 5] = ["mcp", "healthz", "readyz", "metrics", ".well-known"];

/// A view, which offers the same backends at another path with different layers and composites.
/// Each section in the view replaces the section of the file. All other sections are inherited from
/// the file.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["path"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ViewTable {
    /// The URL path at which the view is served over HTTP, such as `/team-a`.
    #[cfg_attr(test, schemars(regex(pattern = "^(/[A-Za-z0-9._~-]+)+$")))]
    path: Option<String>,
    /// Scopes that an access token must have to use the view, in addition to the scopes in
    /// `[auth.jwt]`. By default, no additional scopes are required.
    scopes: Option<Vec<String>>,
    /// Limits on each run of a composite, such as the maximum number of tool calls.
    limits: Option<LimitsTable>,
    /// Configures the progress notifications that clients receive during a run of a composite.
    progress: Option<ProgressTable>,
    /// Limits the size of client requests, and checks tool arguments.
    validate: Option<ValidateTable>,
    /// Allows or hides tools, prompts and resources by name, URI or annotation.
    filter: Option<FilterTable>,
    /// Caches the results of read-only tools. Different views do not share cached results.
    cache: Option<Vec<CacheTable>>,
    /// Removes parts of tool results, such as personal data.
    redactions: Option<Vec<RedactionTable>>,
    /// Limits the total usage of tools in the view. The usage is counted separately from other
    /// views.
    budget: Option<BudgetTable>,
    /// Truncates tool results to a maximum size.
    truncate: Option<TruncateTable>,
    /// Configures where the full versions of truncated results are stored.
    results: Option<ResultsTable>,
    /// Renames tools, prompts and resources, and changes how clients see them.
    aliases: Option<Vec<AliasTable>>,
    /// Selects the tools that clients see, and whether clients list these tools or search for them.
    advertise: Option<AdvertiseTable>,
    /// Composite tools, which call other tools.
    // Read key by key, see `composite_tools::read`.
    #[cfg_attr(test, schemars(with = "Vec<super::tests::schema::Composite>"))]
    composite_tools: IgnoredAny,
}

/// A view of a configuration, which offers the same backends at another path, such as `/team-a`,
/// with its own layers and composites.
#[derive(Clone, Debug)]
pub struct ViewConfig {
    path: String,
    scopes: Vec<String>,
    pub(super) layers: Layers,
}

/// Converts the `[[views]]` tables to view configurations. Reports errors in the tables to
/// `reader`. Views inherit from `sections` and `layers`, which are those of the configuration file.
pub(super) fn build(
    tables: Vec<ViewTable>,
    sections: &Sections,
    layers: Option<&Layers>,
    shared: &Shared,
    reader: &mut Reader<'_, '_>,
) -> Vec<ViewConfig> {
    if tables.len() > MAX_VIEWS {
        reader.report(&[VIEWS.into()], format!("too many views: expected at most {MAX_VIEWS}"));
        return Vec::new();
    }
    let mut paths = HashSet::new();
    let mut views = Vec::with_capacity(tables.len());
    for (index, table) in tables.into_iter().enumerate() {
        let at = [VIEWS.into(), Segment::from(index)];
        let path = reader.required(table.path.clone(), "path", &at);
        if table.path.is_some()
            && let Err(message) = check_path(&path, &mut paths)
        {
            reader.report(&[&at[..], &["path".into()]].concat(), message);
        }
        if let Some(scopes) = &table.scopes
            && let Err(message) = check_scopes(scopes, shared.auth.as_ref(), reader)
        {
            reader.report(&[&at[..], &["scopes".into()]].concat(), message);
        }
        let scopes = table.scopes.clone().unwrap_or_default();
        let own = reader.in_view(index, &path, |reader| {
            table.over(sections, reader).build(shared, layers, reader)
        });
        if let Some(mut layers) = own.flatten() {
            layers.set_view(&path);
            views.push(ViewConfig { path, scopes, layers });
        }
    }
    views
}

fn check_path(path: &str, paths: &mut HashSet<String>) -> Result<(), String> {
    let is_unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let is_segment = |segment: &str| {
        !segment.is_empty() && segment.bytes().all(is_unreserved) && !matches!(segment, "." | "..")
    };
    let Some(segments) = path.strip_prefix('/').filter(|path| path.split('/').all(is_segment))
    else {
        return Err(format!(
            "illegal path {:?}: expected one such as `/team-a`, of letters, digits, `-`, `.`, `_` and \
             `~` between slashes",
            sanitized(path)
        ));
    };
    let first = segments.split('/').next().unwrap_or_default();
    if let Some(first) = RESERVED.iter().find(|reserved| reserved.eq_ignore_ascii_case(first)) {
        return Err(format!("`/{first}` is reserved: expected another path"));
    }
    if !paths.insert(path.to_owned()) {
        return Err(format!("duplicate path `{path}`"));
    }
    Ok(())
}

fn check_scopes(
    scopes: &[String],
    auth: Option<&AuthConfig>,
    reader: &Reader<'_, '_>,
) -> Result<(), &'static str> {
    let has_jwt = auth.is_some_and(|auth| matches!(auth.method(), AuthMethod::Jwt(_)));
    if !has_jwt && !reader.has_fault_in(&["auth".into()]) {
        return Err("only access tokens have scopes: add `[auth.jwt]`, or remove `scopes`");
    }
    auth::check_scopes(scopes)
}

// === impl ViewTable ===

impl ViewTable {
    /// Returns the sections that apply to the view: its own sections and, for each section that it
    /// does not define, the section of the configuration file.
    fn over(self, file: &Sections, reader: &mut Reader<'_, '_>) -> Sections {
        let truncate = self.truncate.unwrap_or_else(|| file.truncate.clone());
        // Omits the store of full results if the view does not truncate results.
        let results = file.results.clone().filter(|_| truncate.is_set());
        let composites = match reader.own_view(composite_tools::SECTION) {
            Some(_) => composite_tools::read(reader),
            None => file.composite_tools.clone(),
        };
        Sections {
            limits: self.limits.unwrap_or_else(|| file.limits.clone()),
            progress: self.progress.unwrap_or_else(|| file.progress.clone()),
            validate: self.validate.unwrap_or_else(|| file.validate.clone()),
            filter: self.filter.unwrap_or_else(|| file.filter.clone()),
            cache: self.cache.unwrap_or_else(|| file.cache.clone()),
            redactions: self.redactions.unwrap_or_else(|| file.redactions.clone()),
            budget: self.budget.unwrap_or_else(|| file.budget.clone()),
            truncate,
            results: self.results.or(results),
            aliases: self.aliases.unwrap_or_else(|| file.aliases.clone()),
            advertise: self.advertise.unwrap_or_else(|| file.advertise.clone()),
            composite_tools: composites,
        }
    }
}

// === impl ViewConfig ===

impl ViewConfig {
    /// Returns the URL path at which the view is served over HTTP, such as `/team-a`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the OAuth scopes that an access token must have to use the view, in addition to
    /// those of [`JwtConfig::scopes`](super::JwtConfig::scopes).
    #[must_use]
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// Returns the composite tools of the view, in the order of the file.
    #[must_use]
    pub fn composite_tools(&self) -> &[CompositeTool] {
        &self.layers.composite_tools
    }
}
