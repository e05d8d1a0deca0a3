use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};

use super::instance;

/// Validates with another implementation of JSON Schema, formats included.
fn assert_valid(schema: &Value, value: &Value) {
    let validator = jsonschema::draft202012::options().should_validate_formats(true).build(schema).unwrap();
    if let Err(errors) = validator.validate(value) {
        panic!("{value} for {schema}: {:?}", errors.map(|e| e.to_string()).collect::<Vec<_>>());
    }
}

fn of(schema: Value) -> Value {
    let value = instance(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    assert_valid(&schema, &value);
    value
}

#[test]
fn objects_have_all_properties_and_arrays_one_item() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 18},
            "score": {"type": "number", "exclusiveMaximum": 0.5},
            "tags": {"type": "array", "items": {"enum": ["new", "old"]}},
            "note": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]},
            "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
            "kind": {"const": "person"},
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    let expected = json!({
        "name": "text", "age": 18, "score": 0.0, "tags": ["new"], "note": null, "limits": {"key": 1}, "kind": "person",
    });
    assert_eq!(of(schema), expected);
}

#[test]
fn recursive_schemas_end() {
    let tree = json!({
        "$defs": {"Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                "parent": {"$ref": "#/$defs/Node"},
            },
            "required": ["value", "next", "children"],
        }},
        "$ref": "#/$defs/Node",
    });
    assert_eq!(of(tree), json!({"value": 1, "next": null, "children": []}));
    let required_once = json!({
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
        "$ref": "#/$defs/Node", "required": ["next"],
    });
    assert_eq!(of(required_once), json!({"next": {}}));
    let among_many = json!({
        "$defs": (0..12).map(|i| (format!("T{i}"), json!({
            "type": "object",
            "properties": (0..12).map(|j| (format!("p{j}"), json!({"$ref": format!("#/$defs/T{j}")}))).collect::<serde_json::Map<_, _>>(),
        }))).collect::<serde_json::Map<_, _>>(),
        "$ref": "#/$defs/T0",
    });
    of(among_many);
}

#[test]
fn keywords_are_respected() {
    for schema in [
        json!({}),
        json!(true),
        json!({"type": ["null", "integer"]}),
        json!({"type": "string", "minLength": 30, "maxLength": 31}),
        json!({"type": "string", "pattern": "^[A-Z]{2}-\\d{4,}(x|y)$", "minLength": 9}),
        json!({"type": "string", "pattern": "\\p{Lu}\\s"}),
        json!({"type": "string", "format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)[a-z0-9.]+@([a-z]+\\.)+[a-z]{2,}$"}),
        json!({"type": "string", "maxLength": 2}),
        json!({"type": "integer", "multipleOf": 7, "minimum": 50}),
        json!({"type": "integer", "exclusiveMinimum": -5, "exclusiveMaximum": -3}),
        json!({"type": "number", "multipleOf": 0.1, "minimum": 0.25}),
        json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001}),
        json!({"type": "array", "uniqueItems": true, "minItems": 3, "items": {"enum": [1, 2, 3]}}),
        json!({"type": "array", "uniqueItems": true, "minItems": 2, "items": {"type": "string", "format": "uuid"}}),
        json!({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": false, "minItems": 2}),
        json!({"type": "array", "maxItems": 0}),
        json!({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}}),
        json!({"type": "object", "minProperties": 3}),
        json!({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"], "maxProperties": 1}),
        json!({"type": "object", "additionalProperties": {"type": "null"}, "propertyNames": {"pattern": "^x_"}, "minProperties": 2}),
        json!({"type": "object", "required": ["a"]}),
        json!({"allOf": [{"properties": {"a": {"type": "number"}}}, {"properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}]}),
        json!({"allOf": [{"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}]}),
        json!({"oneOf": [{"type": "number"}, {"type": "integer"}]}),
        json!({"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}),
        json!({"$defs": {"a/b c": {"const": 5}}, "$ref": "#/$defs/a~1b%20c"}),
        json!({"anyOf": [{"type": "string"}, {"$ref": "#"}, {"$ref": "#"}]}),
        json!({"type": "string", "examples": [5, "Paris"]}),
        json!({"type": "string", "not": {"const": "other"}}),
        json!({"if": {"type": "string"}, "then": {"minLength": 2}}),
        json!({"enum": ["a", 5, null], "type": "integer"}),
    ] {
        of(schema);
    }
    assert_eq!(of(json!({"type": "string", "examples": [5, "Paris"]})), "Paris");
    for format in [
        "date-time",
        "date",
        "time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
        "iri",
        "json-pointer",
        "regex",
        "int32",
    ] {
        of(json!({"type": "string", "format": format}));
        of(
            json!({"type": "array", "uniqueItems": true, "minItems": 2, "items": {"type": "string", "format": format}}),
        );
    }
}

#[test]
fn the_openapi_subset_of_gemini_is_supported() {
    let schema = json!({
        "type": "OBJECT",
        "properties": {"names": {"type": "ARRAY", "items": {"type": "STRING"}, "minItems": "2"}, "age": {"type": "INTEGER", "nullable": true}},
        "required": ["names"],
    });
    assert_eq!(instance(&schema), Ok(json!({"names": ["text", "text"], "age": 1})));
    assert_eq!(instance(&json!({"type": "STRING", "nullable": true, "enum": [null]})), Ok(Value::Null));
}

#[test]
fn schemas_without_a_value_are_explained() {
    let nested = (0..120)
        .fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner, "minItems": 1}));
    for (schema, reason) in [
        (json!(false), "`false` schema"),
        (json!({"type": "object", "properties": {"a": false}, "required": ["a"]}), "a: a `false` schema"),
        (json!({"allOf": [{"type": "string"}, {"type": "integer"}]}), "type"),
        (json!({"type": "integer", "minimum": 2, "maximum": 1}), "bounds"),
        (json!({"type": "string", "not": {}}), "`not`"),
        (json!({"type": "string", "pattern": "^(?=a)"}), "lookaround"),
        (json!({"type": "string", "pattern": "("}), "`pattern` \"(\""),
        (json!({"type": "string", "format": "uuid", "maxLength": 3}), "format uuid"),
        (json!({"type": "string", "minLength": 1e9}), "`minLength` above"),
        (json!({"type": "array", "minItems": 1e9}), "`minItems` above"),
        (json!({"type": "array", "contains": {}, "minContains": 1e19}), "`minContains` above"),
        (
            json!({"type": "array", "minItems": 1000, "items": {"type": "string", "minLength": 10_000}}),
            "the value are longer than",
        ),
        (
            json!({"type": "array", "uniqueItems": true, "minItems": 3, "items": {"type": "boolean"}}),
            "uniqueItems",
        ),
        (json!({"$ref": "#"}), "contains itself"),
        (
            json!({"type": "object", "properties": {"me": {"$ref": "#"}}, "required": ["me"]}),
            "contains itself",
        ),
        (json!({"$ref": "https://example.com/schema"}), "not a JSON pointer"),
        (
            json!({"type": "object", "unevaluatedProperties": false}),
            "`unevaluatedProperties` is not supported",
        ),
        (json!({"type": "text"}), "does not exist"),
        (json!(5), "object or a boolean"),
        (nested, "nests deeper"),
    ] {
        let error = instance(&schema).unwrap_err();
        assert!(error.contains(reason), "{schema}: {error}");
    }
}

/// Generates schemas that use most keywords and refer to each other. Some are unsatisfiable.
fn schemas() -> impl Strategy<Value = Value> {
    let bound = || prop::option::of(-20i32..20);
    let length = || prop::option::of(0u8..8);
    let with = |kind: &str, keywords: Vec<(&str, Option<Value>)>| {
        let mut schema = json!({"type": kind});
        for (key, value) in keywords {
            if let Some(value) = value {
                schema[key] = value;
            }
        }
        schema
    };
    let leaf = prop_oneof![
        Just(json!({"$ref": "#/$defs/A"})),
        Just(json!({"$ref": "#/$defs/B"})),
        prop::sample::select(vec![
            json!(true),
            json!({}),
            json!({"type": "boolean"}),
            json!({"type": ["null", "string"]})
        ]),
        prop::collection::vec(
            prop::sample::select(vec![json!(1), json!("a"), json!(null), json!([2])]),
            1..4
        )
        .prop_map(|values| json!({"enum": values})),
        (length(), length(), prop::option::of(prop::sample::select(vec!["^[a-c]+$", "\\d{2}", "x|yy"])))
            .prop_map(move |(min, max, pattern)| with(
                "string",
                vec![
                    ("minLength", min.map(Value::from)),
                    ("maxLength", max.map(Value::from)),
                    ("pattern", pattern.map(Value::from)),
                ]
            )),
        (prop::sample::select(vec!["integer", "number"]), bound(), bound(), bound()).prop_map(
            move |(kind, min, max, above)| with(
                kind,
                vec![
                    ("minimum", min.map(Value::from)),
                    ("maximum", max.map(|max| json!(f64::from(max) + 0.5))),
                    ("exclusiveMinimum", above.map(Value::from)),
                ]
            )
        ),
        // Not below 0: the other implementation takes every negative number for a multiple.
        (prop::sample::select(vec!["integer", "number"]), 0u8..20, prop::option::of(0u8..20), 1u8..6)
            .prop_map(move |(kind, min, max, step)| with(
                kind,
                vec![
                    ("minimum", Some(json!(min))),
                    ("maximum", max.map(Value::from)),
                    ("multipleOf", Some(json!(f64::from(step) / 2.0))),
                ]
            )),
    ];
    let schema = leaf.prop_recursive(4, 24, 4, move |inner| {
        let few = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            few.clone().prop_map(|options| json!({"anyOf": options})),
            few.clone().prop_map(|options| json!({"oneOf": options})),
            few.clone().prop_map(|parts| json!({"allOf": parts})),
            (inner.clone(), length(), length(), any::<bool>(), prop::option::of(few.clone())).prop_map(
                move |(item, min, max, unique, first)| with(
                    "array",
                    vec![
                        ("items", Some(item)),
                        ("minItems", min.map(|min| json!(min / 2))),
                        ("maxItems", max.map(Value::from)),
                        ("uniqueItems", unique.then_some(json!(true))),
                        ("prefixItems", first.map(Value::from)),
                    ]
                )
            ),
            (
                prop::collection::btree_map("[a-d]", inner.clone(), 0..4),
                prop::collection::btree_set("[a-e]", 0..3),
                prop::option::of(inner),
                length()
            )
                .prop_map(move |(properties, required, additional, min)| with(
                    "object",
                    vec![
                        ("properties", Some(json!(properties))),
                        ("required", Some(json!(required))),
                        ("additionalProperties", additional),
                        ("minProperties", min.map(|min| json!(min / 3))),
                    ]
                )),
        ]
    });
    (schema.clone(), schema.clone(), schema)
        .prop_map(|(root, a, b)| json!({"$defs": {"A": a, "B": b}, "allOf": [root]}))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_values_are_valid(schema in schemas()) {
        if let Ok(value) = instance(&schema) {
            assert_valid(&schema, &value);
        }
    }
}

/// Most of the random schemas have a value. Otherwise the property would hold for a generator that
/// always fails.
#[test]
fn most_random_schemas_have_a_value() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let found =
        (0..500).filter(|_| instance(&schemas().new_tree(&mut runner).unwrap().current()).is_ok()).count();
    assert!(found > 300, "{found} of 500");
}
