use serde_json::json;

use super::*;

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Station {
    name: String,
    stops: Vec<Halt>,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Halt {
    minutes: u32,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mood {
    Good,
    Bad,
}

/// A recursive value.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Nested {
    Leaf(u32),
    Node(Vec<Nested>),
}

#[test]
fn object_schemas_are_requested_directly_others_wrapped() {
    let form = Form::of::<Station>();
    assert_eq!((form.wrapped, &form.schema["type"]), (false, &json!("object")));
    for form in [Form::of::<Vec<Halt>>(), Form::of::<String>(), Form::of::<Mood>(), Form::of::<Nested>()] {
        assert!(form.wrapped);
        assert_eq!((&form.schema["type"], &form.schema["required"]), (&json!("object"), &json!(["value"])));
        assert_eq!(form.schema["additionalProperties"], json!(false));
    }
    assert_eq!(Form::of::<Mood>().read::<Mood>(r#"{"value": "good"}"#), Ok(Mood::Good));
    let nested = Form::of::<Nested>().read::<Nested>(r#"{"value": [1, [2]]}"#);
    assert_eq!(nested, Ok(Nested::Node(vec![Nested::Leaf(1), Nested::Node(vec![Nested::Leaf(2)])])));
}

#[test]
fn recursive_schema_refers_to_an_existing_definition() {
    let schema = Form::of::<Nested>().schema;
    let text = schema.to_string();
    assert!(
        !text.contains(r##""$ref":"#""##),
        "a reference to the root means the wrapper instead of the value: {text}"
    );
    assert!(schema.pointer("/$defs/Nested").is_some(), "{text}");
}

#[test]
fn mismatch_is_reported_with_its_path() {
    let form = Form::of::<Station>();
    let read = |text| form.read::<Station>(text).unwrap_err();
    assert_eq!(
        read(r#"{"name": "a", "stops": [{"minutes": 1}, {"minutes": "two"}]}"#),
        "at `stops[1].minutes`: invalid type: string \"two\", expected u32 at line 1 column 57"
    );
    assert_eq!(read(r#"{"name": "a"}"#), "missing field `stops` at line 1 column 13");
    let place = form.read("Here: {\"name\": \"a\", \"stops\": []} there.");
    assert_eq!(place, Ok(Station { name: "a".to_owned(), stops: Vec::new() }));
    let long = "x".repeat(1 << 20);
    let cut = format!("at `stops[0].minutes`: invalid type: string \"{}", &long[..2_000 - 45]);
    let answer = format!(r#"{{"name": "a", "stops": [{{"minutes": "{long}"}}]}}"#);
    assert_eq!(form.read::<Station>(&answer).unwrap_err(), cut);
    // Values in the requested form are parsed strictly.
    assert_eq!(Form::of::<Vec<u32>>().read::<Vec<u32>>("[1, 2]").unwrap_err(), "it is not a JSON object");
    assert_eq!(read(r#"["a", []]"#), "it is not a JSON object");
    assert!(Form::of::<u32>().read::<u32>(r#"{"value": 1, "note": ""}"#).unwrap_err().contains("note"));
}
