//! The builder of a router, which validates its settings.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    Backend, Conflicts, Router, RouterError, RouterMistake, RouterMistakeKind,
    names::{BackendNames, ExposedNames},
    shared::Shared,
};
use crate::{
    changes::Changes,
    names::{MAX_PREFIX, MAX_SEPARATOR, is_separator, is_spelled},
};

/// The default time for which a list request waits for a slow backend.
const PATIENCE: Duration = Duration::from_secs(5);

/// Builds a [`Router`], which serves several backends as a single MCP server.
#[derive(Debug)]
#[must_use]
pub struct RouterBuilder {
    separator: String,
    conflicts: Conflicts,
    patience: Duration,
    changes: Changes,
    backends: Vec<Backend>,
}

// === impl Router ===

impl Router {
    /// Returns a builder for a router, which serves several backends as a single MCP server.
    pub fn builder() -> RouterBuilder {
        RouterBuilder::default()
    }
}

// === impl RouterBuilder ===

impl RouterBuilder {
    /// Sets the separator between the name of a backend and the name of its tool or prompt.
    /// Defaults to `_`, as in `github_search`.
    pub fn separator(mut self, separator: impl Into<String>) -> Self {
        self.separator = separator.into();
        self
    }

    /// Sets the rule for items, such as tools, that have the same name in several backends.
    /// Defaults to [`Conflicts::Prefix`].
    pub const fn conflicts(mut self, conflicts: Conflicts) -> Self {
        self.conflicts = conflicts;
        self
    }

    /// Sets the maximum time for which a list request of a client, such as `tools/list`, waits for
    /// a slow backend. Defaults to 5 seconds. When this time has passed, the router uses the last
    /// known items of the backend.
    ///
    /// A client may have a shorter timeout, and cancel its list request earlier. If the request has
    /// waited for a backend for at least a second, the next list requests use the last known items
    /// of this backend immediately.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the [`Changes`] channel of the router. If a slow backend returns its list late, and the
    /// list differs from the last known one, the router reports the change to this channel.
    ///
    /// If backends report changes of their lists to the same channel, the router requests the
    /// changed lists again.
    pub fn changes(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    /// Adds a backend to the router. If several backends offer the same item, the [conflict
    /// rule](Self::conflicts) may prefer the backend that was added first.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backends.push(backend);
        self
    }

    /// Validates the settings and builds the router.
    ///
    /// # Errors
    ///
    /// Returns all mistakes in the settings of the router at once:
    /// - There is no backend.
    /// - Two backends have the same name or prefix.
    /// - A name, a prefix or the separator has an invalid length or character.
    /// - A backend has a prefix, but the [conflict rule](Self::conflicts) does not use prefixes.
    pub fn build(self) -> Result<Router, RouterError> {
        let mistakes = self.mistakes();
        if !mistakes.is_empty() {
            return Err(RouterError(mistakes));
        }
        let names = self.backends.iter().map(|backend| BackendNames {
            name: backend.name.clone(),
            prefix: match self.conflicts {
                Conflicts::Prefix => self.prefix(backend),
                Conflicts::Priority | Conflicts::Manual => String::new(),
            },
        });
        let names = ExposedNames::new(self.conflicts, self.separator.clone(), names.collect());
        let shared = Shared::new(names, self.backends, self.patience, self.changes);
        Ok(Router { shared: Arc::new(shared) })
    }

    fn prefix(&self, backend: &Backend) -> String {
        let usual = || format!("{}{}", backend.name, self.separator);
        backend.prefix.clone().unwrap_or_else(usual)
    }

    fn mistakes(&self) -> Vec<RouterMistake> {
        use RouterMistakeKind as Kind;

        let separator = &self.separator;
        let mut mistakes = Vec::new();
        if !is_separator(separator) {
            let kind = Kind::IllegalSeparator { separator: separator.clone(), max: MAX_SEPARATOR };
            mistakes.push(RouterMistake { backend: None, kind });
        }
        if self.backends.is_empty() {
            mistakes.push(RouterMistake { backend: None, kind: Kind::NoBackends });
        }
        let mut names = HashMap::new();
        let mut prefixes: HashMap<String, &Backend> = HashMap::new();
        for (place, backend) in self.backends.iter().enumerate() {
            let mut mistake = |kind| mistakes.push(RouterMistake { backend: Some(place), kind });
            let name = backend.name.to_string();
            if !(1..=MAX_PREFIX).contains(&name.len()) || !is_spelled(&name, separator) {
                mistake(Kind::IllegalName { name, max: MAX_PREFIX });
                continue;
            }
            if names.insert(name.clone(), place).is_some() {
                mistake(Kind::DuplicateName { name });
                continue;
            }
            match (&backend.prefix, self.conflicts) {
                (None, Conflicts::Priority | Conflicts::Manual) => continue,
                (Some(_), Conflicts::Priority | Conflicts::Manual) => {
                    let conflicts = self.conflicts.as_str();
                    mistake(Kind::MeaninglessPrefix { backend: name, conflicts });
                    continue;
                }
                (Some(prefix), Conflicts::Prefix)
                    if prefix.len() > MAX_PREFIX || !is_spelled(prefix, separator) =>
                {
                    let prefix = prefix.clone();
                    mistake(Kind::IllegalPrefix { backend: name, prefix, max: MAX_PREFIX });
                    continue;
                }
                (_, Conflicts::Prefix) => (),
            }
            let prefix = self.prefix(backend);
            if let Some(first) = prefixes.get(&prefix) {
                let backends = [first.name.to_string(), name];
                mistake(Kind::DuplicatePrefix { backends, prefix });
            } else {
                prefixes.insert(prefix, backend);
            }
        }
        mistakes
    }
}

impl Default for RouterBuilder {
    fn default() -> Self {
        Self {
            separator: "_".to_owned(),
            conflicts: Conflicts::default(),
            patience: PATIENCE,
            changes: Changes::default(),
            backends: Vec::new(),
        }
    }
}
