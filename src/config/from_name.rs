//! A macro for enums in configuration files that have the same variants as an enum of a layer.

/// Implements the conversion from an enum in configuration files to the enum of a layer with the
/// same variants.
macro_rules! from_name {
    ($Name:ident => $Type:ident { $($Variant:ident)+ }) => {
        impl From<$Name> for $Type {
            fn from(name: $Name) -> Self {
                match name {
                    $($Name::$Variant => Self::$Variant,)+
                }
            }
        }
    };
}

pub(super) use from_name;
