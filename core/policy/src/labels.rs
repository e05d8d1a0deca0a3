//! Enums whose variants have a stable name in metrics, snapshots and errors.

/// Declares an enum without fields, with one name for each variant: `Variant = "name"`.
macro_rules! labelled {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $( $(#[$variant_attribute:meta])* $variant:ident = $label:literal, )+
        }
    ) => {
        $(#[$attribute])*
        pub enum $name {
            $( $(#[$variant_attribute])* $variant, )+
        }

        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$variant),+];

            /// Returns the stable name, as in metrics, snapshots and errors.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $label, )+
                }
            }
        }
    };
}

pub(crate) use labelled;
