// SPDX-License-Identifier: Apache-2.0
//! The description of one key of a file, and [`keys!`], which declares the keys of a section.

use super::kind::Kind;
use super::value::ValueBounds;

/// One key.
#[derive(Debug)]
pub struct Setting {
    /// Name in the file.
    pub name: &'static str,
    /// Form of the value.
    pub shape: Shape,
    /// Value of an absent key.
    pub preset: Preset,
    /// One sentence for people.
    pub doc: &'static str,
    /// Example of the value, as YAML on one line; if empty, the default is the example. For named
    /// sections, an example of a name. Empty for other sections.
    pub example: &'static str,
    /// Whether `tautline init` writes the key without a comment sign.
    pub in_starter: bool,
    /// For named sections: the key that is set if a single value stands in place of the section.
    pub short_for: Option<&'static str>,
    /// For named sections: the key that holds the name in the list form; `None` allows only the map.
    pub list_with: Option<&'static str>,
    /// What a reload does with a changed value.
    pub reload: Reload,
    /// Text after the value in the differences of a reload.
    pub unit: &'static str,
    /// Text for an absent value in the differences of a reload.
    pub unset: &'static str,
}

/// The value of an absent key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// The key is required.
    Required,
    /// No value; the sentence describes the effect.
    Absent(&'static str),
    /// This value, as in the file.
    Value(&'static str),
    /// A value computed when the file is read, in words.
    Computed(&'static str),
}

/// What a reload does with a changed value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// Shows it as a difference and applies it.
    Applied,
    /// Refuses it, because the value is bound to threads and sockets or agreed with others at the start.
    Refused,
    /// Shows it together with other keys, or compares values computed from it (both in
    /// `config/entries.rs`).
    Elsewhere,
}

/// The form of a key's value, with the kind of single values.
#[derive(Debug)]
pub enum Shape<K = Kind> {
    /// One value.
    Single(K),
    /// A list of values; a single value needs no brackets.
    List(K),
    /// A list of values, a single value, or a map from values to their types.
    Typed(K),
    /// A map from names to names.
    Renames(K),
    /// A section with these keys.
    Section(&'static [Setting]),
    /// A section with these keys, or `true` or `false`.
    Switch(&'static [Setting]),
    /// A map from the fields of a message to values. The message type is not known yet.
    Fields,
    /// A list of sections.
    Sections(&'static [Setting]),
    /// A map from names of this kind to sections with these keys.
    Named(K, &'static [Setting]),
}

/// A shape without its kind, as the Rust type of a key determines it.
pub(super) type Form = Shape<ValueBounds>;

impl Form {
    /// Completes the form with a kind.
    const fn shape(self, kinds: &[Kind]) -> Shape {
        match (self, kinds) {
            (Self::Single(holds), [kind]) => Shape::Single(check_kind(*kind, holds)),
            (Self::List(holds), [kind]) => Shape::List(check_kind(*kind, holds)),
            (Self::Typed(holds), [kind]) => Shape::Typed(check_kind(*kind, holds)),
            (Self::Renames(holds), [kind]) => Shape::Renames(check_kind(*kind, holds)),
            (Self::Named(names, keys), [kind]) => Shape::Named(check_kind(*kind, names), keys),
            (Self::Section(keys), []) => Shape::Section(keys),
            (Self::Switch(keys), []) => Shape::Switch(keys),
            (Self::Sections(keys), []) => Shape::Sections(keys),
            (Self::Fields, []) => Shape::Fields,
            _ => panic!("a section has no kind, and another key has one"),
        }
    }
}

/// Returns `kind`. It does not compile if the type of the key cannot hold values of this kind.
const fn check_kind(kind: Kind, ValueBounds(variant, largest): ValueBounds) -> Kind {
    assert!(variant as u8 == kind.variant() as u8, "the type does not hold values of this kind");
    if let Kind::Whole(_, most) = kind {
        assert!(most <= largest, "the type does not hold numbers of this range");
    }
    kind
}

impl Setting {
    /// Creates a key with default attributes. A description taken from a doc comment begins with a space.
    pub(super) const fn new(
        name: &'static str,
        doc: &'static str,
        shape: Form,
        kinds: &[Kind],
        preset: Preset,
    ) -> Self {
        Self {
            name,
            shape: shape.shape(kinds),
            preset,
            doc: doc.split_at(1).1,
            example: if let Preset::Value(value) = preset { value } else { "" },
            in_starter: false,
            short_for: None,
            list_with: None,
            reload: Reload::Applied,
            unit: "",
            unset: "none",
        }
    }
}

/// Declares the keys of a section. A row is one key:
///
/// ```text
/// /// Description, for people.
/// NAME: TYPE as KIND, PRESET, FIELD_OF_SETTING: VALUE, ..;
/// ```
///
/// The macro makes a struct with an [`Entry`](super::read::Entry) for each key; an associated constant of the
/// same name with the key's [`Setting`]; and an implementation of [`Keys`](super::read::Keys), from which
/// reading, reference, schema, starter file and differences follow.
///
/// `struct KEYS => VALUES(NAME)` also makes a struct `VALUES` that holds only valid values and the name of
/// the named section, and the conversion to it. There, an absent key without a default is an `Option`.
macro_rules! keys {
    ($($(#[doc = $about:literal])* struct $section:ident $(=> $values:ident $(($name:ident))?)? {$(
        $(#[doc = $doc:literal])*
        $key:ident: $type:ty $(as $kind:expr)?, $preset:expr
            $(, $attribute:ident: $value:expr)*;
    )*})*) => {$(
        $(#[doc = $about])*
        #[derive(Debug, Clone)]
        pub struct $section {
            /// Start of the section.
            pub at: $crate::config::problem::Position,
            $($(#[doc = $doc])* pub $key: read::Entry<<$type as read::Row>::Content>,)*
        }

        #[allow(non_upper_case_globals, missing_docs)]
        impl $section {$(
            pub const $key: Setting = Setting {
                $($attribute: $value,)*
                ..Setting::new(
                    stringify!($key),
                    concat!($($doc),*),
                    <<$type as read::Row>::Content as read::Content>::FORM,
                    &[$($kind)?],
                    $preset,
                )
            };
        )*}

        impl Keys for $section {
            const TABLE: &'static [Setting] = &[$(Self::$key),*];

            fn read(walk: &mut read::Walk<'_>, given: &read::GivenKeys<'_>) -> Self {
                walk.unknown_keys(Self::TABLE, given);
                $(let $key = walk.given_key(&Self::$key, given);)*
                Self {
                    at: given.at,
                    $($key: $key.unwrap_or_else(|| walk.absent_key(&Self::$key, given)),)*
                }
            }

            fn described(&self, reload: Reload) -> read::Described {
                let rows = [$(self.$key.described(&Self::$key, reload)),*];
                rows.into_iter().flatten().collect()
            }
        }

        $crate::config::setting::keys! {
            @values $section $($values $(($name))?)? { $($(#[doc = $doc])* $key: $type,)* }
        }
    )*};
    (@values $section:ident { $($row:tt)* }) => {};
    (@values $section:ident $values:ident $(($name:ident))? {
        $($(#[doc = $doc:literal])* $key:ident: $type:ty,)*
    }) => {
        #[doc = concat!("The values of the keys of a section, with all defaults.")]
        #[derive(Debug, Clone, PartialEq)]
        pub struct $values {
            $(#[doc = "Name of the section."] pub $name: String,)?
            $($(#[doc = $doc])* pub $key: $type,)*
        }

        impl $section {
            /// Returns the values; `None` if one of them is wrong.
            pub fn values(&self $(, $name: &str)?) -> Option<$values> {
                Some($values {
                    $($name: $name.into(),)?
                    $($key: read::Row::value(&self.$key)?,)*
                })
            }
        }
    };
}
pub(super) use keys;
