//! Enumerations whose values have names in configuration files.

/// A type whose values have names in configuration files.
#[cfg(feature = "config")]
pub(crate) trait Named: Copy + 'static {
    /// All values with their names.
    const ALL: &'static [(&'static str, Self)];
}

/// Adds the method `name` to an enumeration, and implements `Named` for it.
macro_rules! named {
    ($Type:ident { $($Variant:ident => $name:literal,)+ }) => {
        impl $Type {
            /// Returns the name that configuration files use for this value.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }
        }

        #[cfg(feature = "config")]
        impl crate::named::Named for $Type {
            const ALL: &'static [(&'static str, Self)] = &[$(($name, Self::$Variant),)+];
        }
    };
}

pub(crate) use named;
