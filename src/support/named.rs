//! A trait and a macro for enums whose variants have names in configuration files, such as
//! `declared`.

/// An enum whose variants have names in configuration files.
#[cfg(feature = "config")]
pub(crate) trait Named: Copy + 'static {
    /// All variants of the enum, each with its name in configuration files.
    const ALL: &'static [(&'static str, Self)];
}

/// Implements `Named` for an enum, and adds a method `name` that returns the name of a variant.
macro_rules! named {
    ($Type:ident { $($Variant:ident => $name:literal,)+ }) => {
        impl $Type {
            /// Returns the name by which configuration files refer to this variant.
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
