use std::borrow::Cow;

/// Values that must not be told.
#[derive(Clone, Default)]
pub struct Secrets(std::sync::Arc<[String]>);

impl Secrets {
    /// These values.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        Self(values.into_iter().collect())
    }

    /// These and those.
    #[must_use]
    pub fn and(&self, values: impl IntoIterator<Item = String>) -> Self {
        Self::new(self.0.iter().cloned().chain(values))
    }

    /// The text without them.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &*self.0 {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), "***"));
            }
        }
        text
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}
