//! Enums whose variants have a stable name in metrics, snapshots and errors.

/// Declares an enum with one name for each variant: `Variant = "name"`. If no variant contains a
/// value, the enum also gets the constant `ALL`, a list of its variants.
macro_rules! labelled {
    (@all $name:ident $($variant:ident)+) => {
        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];
        }
    };
    (@all $name:ident $($with_value:tt)+) => {};
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $( $(#[$variant_attribute:meta])* $variant:ident $(($value:ty))? = $label:literal, )+
        }
    ) => {
        $(#[$attribute])*
        pub enum $name {
            $( $(#[$variant_attribute])* $variant $(($value))?, )+
        }

        impl $name {
            /// Returns the stable name, as in metrics, snapshots and errors.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant { .. } => $label, )+
                }
            }
        }

        labelled! { @all $name $($variant $(($value))?)+ }
    };
}

pub(crate) use labelled;
