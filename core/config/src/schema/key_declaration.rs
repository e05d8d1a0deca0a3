//! The macros that declare the keys of the configuration, and the types that describe a declared
//! key.
//!
//! [`settings!`] declares the keys of one table, each with its type, unit, range, default and
//! documentation. It generates the struct with the values, its defaults, the code that reads and
//! prints it, and the methods of the builder. A test generates the reference page and the types of
//! the Python and Node packages from the same declarations.

use super::{Table, Value};

/// A builder of a table: records the keys that were set as untyped values, as if read from a file.
pub(crate) trait Builder: Sized {
    /// Returns the keys that were set.
    fn keys(&mut self) -> &mut Table;

    /// Sets a key. Replaces the value that it has.
    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        *self.keys().value_mut(key) = value.into();
        self
    }

    /// Appends an item to the list that a key has. If the key has no list, it gets a new one.
    fn append(mut self, key: &str, item: impl Into<Value>) -> Self {
        let item = item.into().into();
        match self.keys().value_mut(key) {
            Value::List(items) => items.push(item),
            other => *other = Value::List(vec![item]),
        }
        self
    }

    /// Adds a table named `name` to the table that `key` has, such as `acme` to `tenants`. A table
    /// of the same name is not replaced; the duplicate is rejected when the configuration is read.
    fn add(mut self, key: &str, name: &str, table: Table) -> Self {
        let table = Value::Table(table);
        match self.keys().value_mut(key) {
            Value::Table(named) => named.push(name, table),
            other => *other = Value::Table([(name, table)].into()),
        }
        self
    }
}

/// Pairs of a key path and the value of the key with its unit, in the order in which `tidegate
/// check` prints them.
pub(crate) type Lines = Vec<(String, String)>;

/// Returns keys and their values as `key value, key value`.
pub(crate) fn on_one_line(lines: Lines) -> String {
    let lines: Vec<String> = lines.into_iter().map(|(key, value)| format!("{key} {value}")).collect();
    lines.join(", ")
}

/// The declared keys of a table.
pub(crate) struct KeyTable {
    /// The name of the table's type in Python and TypeScript.
    #[cfg(test)]
    pub(crate) name: &'static str,
    #[cfg(test)]
    pub(crate) docs: &'static [&'static str],
    pub(crate) keys: &'static [Key],
}

/// The declaration of one key.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    #[cfg(test)]
    pub(crate) docs: &'static [&'static str],
    #[cfg(test)]
    pub(crate) unit: &'static str,
    #[cfg(test)]
    pub(crate) kind: fn() -> Kind,
    /// Returns the default as text for the reference page.
    #[cfg(test)]
    pub(crate) default: fn() -> String,
}

impl KeyTable {
    /// Returns the names of the keys in the order of their declaration.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name)
    }

    /// Returns `true` if the table declares a key of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().any(|declared| declared == name)
    }
}

/// Returns the names of the keys of several tables.
pub(crate) fn names(tables: &[&KeyTable]) -> Vec<&'static str> {
    tables.iter().flat_map(|table| table.names()).collect()
}

/// Returns the default of a key for the reference page: the value, or `note` in its place. If the
/// value can be switched off but is not, `note` describes the state in which it is off, and both
/// are returned. Empty if there is no note and the value is a table of tables, such as `tenants`.
#[cfg(test)]
pub(crate) fn default_text<T: super::Setting>(default: &T, bounds: &T::Bounds, note: &str) -> String {
    let can_be_off = matches!(T::kind(bounds), Kind::OrNone(_));
    let lines = default.list("", "", "none");
    match &*lines {
        [(_, text)] if note.is_empty() => text.clone(),
        [(_, text)] if can_be_off && text != "none" => format!("{text} (none: {note})"),
        _ => note.to_owned(),
    }
}

/// The type of a key's value, for the reference page and the types of Python and TypeScript.
#[cfg(test)]
pub(crate) enum Kind {
    /// A number that may have a fraction, with its range as text.
    Number(String),
    /// A whole number, with its range as text.
    Whole(String),
    /// A number of tokens or requests, with its range as text.
    Count(String),
    Duration(String),
    Bool,
    /// One of these keywords, each with the lines of its documentation.
    Keywords(&'static [(&'static str, &'static [&'static str])]),
    Text(&'static str),
    /// A text or a list of texts, with a description of one text.
    TextOrList(&'static str),
    OrNone(Box<Kind>),
    Table(&'static KeyTable),
    /// A table with these keys, or a single value of this type.
    TableOr(&'static KeyTable, Box<Kind>),
    /// A map from names that the user chooses to tables with these keys.
    Named(&'static KeyTable),
    /// A map from names that the user chooses to tables of this type, or to whole numbers (a cap).
    NamedOrCap(&'static str),
    /// Any other type. `reference` describes it in the reference page, and the other fields are its
    /// types in TypeScript and Python.
    Special {
        reference: &'static str,
        typescript: &'static str,
        python: &'static str,
    },
}

/// Declares the keys of a table.
///
/// ```ignore
/// settings! {
///     /// What the table configures.
///     pub struct Limits, table LIMITS "LimitsConfig", builders [LimitsBuilder];
///     // Optional: reports values that are valid alone and impossible together.
///     check check_limits;
///     // Optional: values that are not read from one key.
///     fields {
///         /// What the field holds.
///         name: Arc<str> = "".into();
///     }
///     // Keys that are read by the declared type. The text after `=>` is what the value means when
///     // it is switched off, or how the default is described.
///     keys {
///         /// What the key sets.
///         wait: Option<Duration> "per call" = None, TIME_RANGE => "no limit";
///     }
///     // Optional: keys that the parser reads itself.
///     special {
///         /// What the key sets.
///         url: Kind::Text("a base URL") => "none";
///     }
/// }
/// ```
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        pub struct $Config:ident, table $TABLE:ident $name:literal, builders [$($Builder:ident),*];
        $(check $check:ident;)?
        $(fields $fields:tt)?
        keys $keys:tt
        $(special $special:tt)?
    ) => {
        settings!(@values $(#[doc = $about])+ $Config $TABLE $name [$($check)?] [$($fields)?] $keys [$($special)?]);
        $( settings!(@builder $Builder $keys); )*
    };
    (
        $(#[doc = $about:literal])+
        table $TABLE:ident $name:literal;
        $( $(#[doc = $doc:literal])+ $key:ident: $kind:expr => $default:literal; )+
    ) => {
        settings!(@table $TABLE $name [$($about),+] [
            $( settings!(@key $key [$($doc),+] "", $kind, $default.to_owned()), )+
        ]);
    };
    // The static with the declared keys of a table.
    (@table $TABLE:ident $name:literal [$($about:literal),+] $keys:expr) => {
        pub(crate) static $TABLE: $crate::schema::KeyTable = $crate::schema::KeyTable {
            #[cfg(test)]
            name: $name,
            #[cfg(test)]
            docs: &[$($about),+],
            keys: &$keys,
        };
    };
    // The declaration of one key.
    (@key $key:ident [$($doc:literal),+] $unit:expr, $kind:expr, $default:expr) => {
        $crate::schema::Key {
            name: stringify!($key),
            #[cfg(test)]
            docs: &[$($doc),+],
            #[cfg(test)]
            unit: $unit,
            #[cfg(test)]
            kind: || $kind,
            #[cfg(test)]
            default: || $default,
        }
    };
    (
        @values $(#[doc = $about:literal])+ $Config:ident $TABLE:ident $name:literal [$($check:ident)?]
        [$({ $( $(#[doc = $field_doc:literal])+ $field:ident: $field_type:ty = $field_default:expr; )* })?]
        { $(
            $(#[doc = $doc:literal])+
            $key:ident: $type:ident $(<$inner:ident>)? $($unit:literal)? = $default:expr, $bounds:expr $(=> $note:literal)?;
        )* }
        [$({ $( $(#[doc = $special_doc:literal])+ $special:ident: $kind:expr => $special_default:literal; )* })?]
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Config {
            $($( $(#[doc = $field_doc])+ pub $field: $field_type, )*)?
            $(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nDefault: `", stringify!($default), "`" $(, " (", $note, ")")?, ".")]
                pub $key: $type $(<$inner>)?,
            )*
        }

        settings!(@table $TABLE $name [$($about),+] [
            $($( settings!(@key $special [$($special_doc),+] "", $kind, $special_default.to_owned()), )*)?
            $( settings!(
                @key $key [$($doc),+] concat!($($unit)?),
                <$type $(<$inner>)? as $crate::schema::Setting>::kind(&$bounds),
                $crate::schema::default_text::<$type $(<$inner>)?>(&$default, &$bounds, concat!($($note)?))
            ), )*
        ]);

        impl Default for $Config {
            fn default() -> Self {
                Self { $($($field: $field_default,)*)? $($key: $default,)* }
            }
        }

        const _: () = {
            use $crate::schema::{Given, Lines, Setting, join, on_one_line};

            impl $Config {
                /// Replaces the value of each key that `given` contains. Reports invalid values and
                /// leaves the fields of those keys unchanged. Ignores unknown keys.
                pub(crate) fn read(&mut self, given: &Given<'_>) {
                    $( given.set(stringify!($key), &mut self.$key, &$bounds); )*
                }

                /// Returns the path and the value of each key. Each path starts with `path`, the
                /// path of this table.
                pub(crate) fn lines(&self, path: &str) -> Lines {
                    let mut lines = Lines::new();
                    $( {
                        let none = [$($note,)? "none"][0];
                        lines.extend(self.$key.list(&join(path, stringify!($key)), concat!($($unit)?), none));
                    } )*
                    lines
                }
            }

            impl Setting for $Config {
                type Bounds = ();

                fn overlay(&mut self, given: &Given<'_>, (): &()) {
                    if given.check_table(&[&$TABLE]) {
                        self.read(given);
                        $( $check(self, given); )?
                    }
                }

                fn list(&self, path: &str, _unit: &str, _none: &str) -> Lines {
                    vec![(path.to_owned(), on_one_line(self.lines("")))]
                }

                #[cfg(test)]
                fn kind((): &()) -> $crate::schema::Kind {
                    $crate::schema::Kind::Table(&$TABLE)
                }
            }
        };
    };
    (
        @builder $Builder:ident
        { $(
            $(#[doc = $doc:literal])+
            $key:ident: $type:ident $(<$inner:ident>)? $($unit:literal)? = $default:expr, $bounds:expr $(=> $note:literal)?;
        )* }
    ) => {
        impl $Builder {
            $( settings!(@setter [$(#[doc = $doc])+] $key: $type $(<$inner>)?); )*
        }
    };
    (@keys $Builder:ident) => {
        impl $crate::schema::Builder for $Builder {
            fn keys(&mut self) -> &mut $crate::schema::Table {
                &mut self.keys
            }
        }

        impl From<$Builder> for $crate::schema::Value {
            fn from(builder: $Builder) -> Self {
                Self::Table(builder.keys)
            }
        }
    };
    // A pool is created from its replicas, a configuration by `Config::builder`, and the settings
    // of shared limits with their store.
    (@new Pool) => {};
    (@new Share) => {};
    (@new ConfigBuilder) => {};
    (@new $Builder:ident) => {
        /// Creates a builder with no key set.
        pub fn new() -> Self {
            Self::default()
        }
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Option<HeaderName>) => {
        settings!(@setter [$(#[doc = $doc])+] $key: Option<Text>);
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Option<Text>) => {
        #[doc = concat!("Sets `", stringify!($key), "`, or switches it off.\n\n")]
        $(#[doc = $doc])+
        pub fn $key<'a>(self, value: impl Into<Option<&'a str>>) -> Self {
            $crate::schema::Builder::set(self, stringify!($key), value.into().map(Text::from))
        }
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Option<$inner:ident>) => {
        #[doc = concat!("Sets `", stringify!($key), "`, or switches it off.\n\n")]
        $(#[doc = $doc])+
        pub fn $key(self, value: impl Into<Option<$inner>>) -> Self {
            let value: Option<$inner> = value.into();
            $crate::schema::Builder::set(self, stringify!($key), value)
        }
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Text) => {
        #[doc = concat!("Sets `", stringify!($key), "`.\n\n")]
        $(#[doc = $doc])+
        pub fn $key(self, value: impl Into<String>) -> Self {
            $crate::schema::Builder::set(self, stringify!($key), $crate::schema::Value::Text(value.into()))
        }
    };
    // Maps and lists of tables have setters by name.
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Budgets) => {};
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Tenants) => {};
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Lanes) => {};
    (@setter [$(#[doc = $doc:literal])+] $key:ident: RetryConfig) => {
        settings!(@setter [$(#[doc = $doc])+] $key: Retry);
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: TenantConfig) => {
        settings!(@setter [$(#[doc = $doc])+] $key: Tenant);
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: TransportConfig) => {
        settings!(@setter [$(#[doc = $doc])+] $key: Transport);
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: $type:ident) => {
        #[doc = concat!("Sets `", stringify!($key), "`.\n\n")]
        $(#[doc = $doc])+
        pub fn $key(self, value: $type) -> Self {
            $crate::schema::Builder::set(self, stringify!($key), value)
        }
    };
}

/// Declares the struct of a builder, with [`Builder`] implemented. [`settings!`] adds the setters.
///
/// Builders do not implement `Debug`, because a URL may contain a password until
/// [`ConfigBuilder::build`](crate::ConfigBuilder::build) has rejected it.
macro_rules! builders {
    ($( $(#[doc = $doc:literal])+ $Builder:ident; )+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Default)]
        pub struct $Builder {
            pub(crate) keys: $crate::schema::Table,
        }

        impl $Builder {
            settings!(@new $Builder);
        }

        settings!(@keys $Builder);
    )+};
}
