use std::collections::BTreeSet;

use super::*;

fn build(spec: &str, base_url: Option<&str>, variables: &[(&str, &str)]) -> Result<Provider, String> {
    let target = Target::parse(spec).unwrap();
    let target = base_url.map_or(Ok(target.clone()), |url| target.with_base_url(url)).unwrap();
    let variable = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
    Provider::with_variables(target, variable).map_err(|error| error.to_string())
}

#[test]
fn missing_key_is_named_by_its_variable() {
    for (spec, variable) in [
        ("anthropic/m", "ANTHROPIC_API_KEY"),
        ("openai/m", "OPENAI_API_KEY"),
        ("openai-responses/m", "OPENAI_API_KEY"),
        ("gemini/m", "GEMINI_API_KEY"),
    ] {
        let provider = spec.split('/').next().unwrap();
        let says = format!("no key for {provider}. Set {variable}, or give the base URL of a server that needs no key");
        for variables in [vec![], vec![(variable, " ")]] {
            assert_eq!(build(spec, None, &variables).map(|_| ()), Err(says.clone()));
        }
        assert!(build(spec, Some("http://127.0.0.1:1"), &[]).is_ok());
    }
    assert!(build("ollama/m", None, &[]).is_ok());
}

#[test]
fn invalid_key_is_refused_without_showing_it() {
    let says =
        build("openai/m", Some("http://127.0.0.1:1"), &[("OPENAI_API_KEY", "two words")]).map(|_| ()).unwrap_err();
    assert_eq!(
        says,
        "the key in OPENAI_API_KEY is invalid: it is empty, or has a character that HTTP headers do not allow"
    );
}

#[test]
fn calls_count_by_model_provider_and_server() {
    let quotas = |spec, url| build(spec, url, &[("ANTHROPIC_API_KEY", "k")]).unwrap().quotas().to_vec();
    assert_eq!(quotas("anthropic/claude-x", None), ["anthropic/claude-x".into(), Text::from("anthropic")]);
    assert_eq!(
        quotas("openai/a/b:c", Some("http://127.0.0.1:8080/v1")),
        ["openai@127.0.0.1:8080/a/b:c".into(), Text::from("openai@127.0.0.1:8080")]
    );
}

/// A server pauses the calls of its quota. The control: writings of one address have one quota.
#[test]
fn servers_of_one_host_name_have_their_own_quotas() {
    let quotas = |spec: &str, url: &str| build(spec, Some(url), &[]).unwrap().quotas().to_vec();
    let urls =
        ["http://h", "https://h", "https://h:8443", "https://h/a/v1", "https://h/b/v1", "https://h/v2", "https://h/A"];
    let all: BTreeSet<Text> = urls.iter().flat_map(|url| quotas("openai/m", url)).collect();
    assert_eq!(all.len(), 2 * urls.len(), "{all:?}");
    for same in [
        ["https://h", "https://h/v1/"],
        ["https://h/a", "https://h/a/v1/chat/completions"],
        ["http://h", "http://h:80/v1"],
    ] {
        assert_eq!(quotas("openai/m", same[0]), quotas("openai/m", same[1]), "{same:?}");
    }
    assert_eq!(quotas("ollama/m", "http://h:1/api"), ["ollama@h:1/m".into(), Text::from("ollama@h:1")]);
    // A path may have a key, which clients would see in the names of quotas.
    assert!(!quotas("openai/m", "https://h/secret/v1").iter().any(|quota| quota.contains("secret")));
}

#[test]
fn ollama_server_is_read_from_its_variable() {
    let at = |host| build("ollama/m", None, &[("OLLAMA_HOST", host)]).map(|provider| provider.client.origin());
    assert_eq!(at("box:99"), Ok("http://box:99".into()));
    assert_eq!(at(""), Ok("http://127.0.0.1:11434".into()));
    assert!(at("ftp://x").is_err_and(|says| says.starts_with("OLLAMA_HOST is invalid: ")));
}

#[test]
fn provider_model_keeps_its_given_name() {
    let provider = build("openai/org/model:tag", Some("https://host/v1"), &[]).unwrap();
    assert_eq!((provider.name(), provider.leaves_process()), ("openai/org/model:tag", true));
}
