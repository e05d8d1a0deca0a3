//! The declaration of keys.
//!
//! [`settings!`] declares the keys of one table, each with its type, unit, range, default and
//! documentation. It generates the struct with the values, its defaults, the code that reads and
//! prints it, and the methods of the builder. A test generates the reference page and the types of
//! the Python and Node packages from the same declarations.

use super::{Given, Table, Value};

/// A builder of a table: records the keys that were set as untyped values, as if read from a file.
pub(crate) trait Builder: Sized {
    /// Returns the keys that were set.
    fn keys(&mut self) -> &mut Table;

    /// Sets a key. Replaces the value that it has.
    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.keys().put(key, value.into());
        self
    }

    /// Appends an item to the list of a key.
    fn append(mut self, key: &str, item: impl Into<Value>) -> Self {
        self.keys().append(key, item.into());
        self
    }

    /// Adds a table named `name` to the table of a key; see [`Table::add`].
    fn add(mut self, key: &str, name: &str, table: Table) -> Self {
        self.keys().add(key, name, table);
        self
    }
}

/// Key paths, and values with their units, in the order in which `tidegate check` prints them.
pub(crate) type Lines = Vec<(String, String)>;

/// A struct with the values of one table of the configuration. Implemented by [`settings!`].
pub(crate) trait SettingGroup {
    /// Replaces the values of the keys that the table has. Reports invalid values and leaves the
    /// fields of those keys unchanged. Ignores unknown keys.
    fn read(&mut self, given: &Given<'_>);

    /// Appends the path and the value of each key. `path` is that of the table.
    fn list_keys(&self, path: &str, lines: &mut Lines);

    /// Returns the path and the value of each key. `path` is that of the table.
    fn lines(&self, path: &str) -> Lines {
        let mut lines = Lines::new();
        self.list_keys(path, &mut lines);
        lines
    }

    /// Returns the keys and their values as `key value, key value`.
    fn on_one_line(&self) -> String {
        let lines: Vec<String> =
            self.lines("").into_iter().map(|(key, value)| format!("{key} {value}")).collect();
        lines.join(", ")
    }
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
}

/// Returns the names of the keys of several tables.
pub(crate) fn names(tables: &[&KeyTable]) -> Vec<&'static str> {
    tables.iter().flat_map(|table| table.names()).collect()
}

/// The type of a key's value, for the reference page and the types of Python and TypeScript.
#[cfg(test)]
pub(crate) enum Kind {
    Number {
        type_name: &'static str,
        range: String,
    },
    /// A number of tokens or requests, with its range as text.
    Count(String),
    Duration(String),
    Bool,
    /// Each keyword and its documentation.
    Keywords(&'static [(&'static str, &'static [&'static str])]),
    Text(&'static str),
    /// A text or a list of texts.
    TextOrList(&'static str),
    OrNone(Box<Kind>),
    Table(&'static KeyTable),
    /// Tables with these keys, by names that the user chooses.
    Named(&'static KeyTable),
    /// Tables of this type, or whole numbers (a cap), by names that the user chooses.
    NamedOrCap(&'static str),
    /// Any other type: its description in the reference, and the types in TypeScript and Python.
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
        pub(crate) static $TABLE: $crate::schema::KeyTable = $crate::schema::KeyTable {
            #[cfg(test)]
            name: $name,
            #[cfg(test)]
            docs: &[$($about),+],
            keys: &[$(settings!(@special $key [$($doc),+] ($kind) $default)),+],
        };
    };
    (@special $key:ident [$($doc:literal),+] ($kind:expr) $default:literal) => {
        $crate::schema::Key {
            name: stringify!($key),
            #[cfg(test)]
            docs: &[$($doc),+],
            #[cfg(test)]
            unit: "",
            #[cfg(test)]
            kind: || $kind,
            #[cfg(test)]
            default: || $default.to_owned(),
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

        pub(crate) static $TABLE: $crate::schema::KeyTable = $crate::schema::KeyTable {
            #[cfg(test)]
            name: $name,
            #[cfg(test)]
            docs: &[$($about),+],
            keys: &[
                $($( settings!(@special $special [$($special_doc),+] ($kind) $special_default), )*)?
                $( $crate::schema::Key {
                    name: stringify!($key),
                    #[cfg(test)]
                    docs: &[$($doc),+],
                    #[cfg(test)]
                    unit: concat!($($unit)?),
                    #[cfg(test)]
                    kind: || <$type $(<$inner>)? as $crate::schema::Setting>::kind(&$bounds),
                    #[cfg(test)]
                    default: || {
                        let note = concat!($($note)?);
                        if !note.is_empty() {
                            return note.to_owned();
                        }
                        let default: $type $(<$inner>)? = $default;
                        let mut lines = Vec::new();
                        $crate::schema::Setting::list(&default, "", "", "none", &mut lines);
                        if let [(_, text)] = &*lines { text.clone() } else { String::new() }
                    },
                }, )*
            ],
        };

        impl Default for $Config {
            fn default() -> Self {
                Self { $($($field: $field_default,)*)? $($key: $default,)* }
            }
        }

        const _: () = {
            use $crate::schema::{Given, SettingGroup, Lines, Setting, join};

            impl SettingGroup for $Config {
                fn read(&mut self, given: &Given<'_>) {
                    $( given.set(stringify!($key), &mut self.$key, &$bounds); )*
                }

                fn list_keys(&self, path: &str, lines: &mut Lines) {
                    $( {
                        let notes: &[&str] = &[$($note)?];
                        let none = notes.first().copied().unwrap_or("none");
                        self.$key.list(&join(path, stringify!($key)), concat!($($unit)?), none, lines);
                    } )*
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

                fn list(&self, path: &str, _unit: &str, _none: &str, lines: &mut Lines) {
                    lines.push((path.to_owned(), self.on_one_line()));
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
    // A pool is created from its replicas, and a configuration by `Config::builder`.
    (@new Pool) => {};
    (@new ConfigBuilder) => {};
    (@new $Builder:ident) => {
        /// Creates a builder with no key set.
        pub fn new() -> Self {
            Self::default()
        }
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Option<Text>) => {
        settings!(@optional_text [$(#[doc = $doc])+] $key);
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Option<HeaderName>) => {
        settings!(@optional_text [$(#[doc = $doc])+] $key);
    };
    (@optional_text [$(#[doc = $doc:literal])+] $key:ident) => {
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
    // Maps and lists of tables have setters by name.
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Tenants) => {};
    (@setter [$(#[doc = $doc:literal])+] $key:ident: Lanes) => {};
    (@setter [$(#[doc = $doc:literal])+] $key:ident: RetryConfig) => {
        settings!(@setter [$(#[doc = $doc])+] $key: Retry);
    };
    (@setter [$(#[doc = $doc:literal])+] $key:ident: TenantConfig) => {
        settings!(@setter [$(#[doc = $doc])+] $key: Tenant);
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
