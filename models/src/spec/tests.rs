use super::*;

fn parse(word: &str) -> Result<String, String> {
    ModelSpec::parse(word).map(|spec| spec.to_string()).map_err(|error| error.to_string())
}

#[test]
fn unknown_model_is_refused_with_the_choices() {
    assert_eq!(parse(" offline "), Ok("offline".into()));
    assert_eq!(parse("scripted:a b.json"), Ok("scripted:a b.json".into()));
    assert_eq!(parse("sonnet"), Err(format!("unknown model `sonnet`: {CHOICES}")));
    for word in ["scripted", "scripted:"] {
        assert_eq!(parse(word), Err("`scripted:` needs a file. Write `scripted:FILE`".into()));
    }
}

#[test]
fn similar_names_are_suggested() {
    let hint =
        |word| parse(word).map_or_else(|says| says.split(CHOICES).next().unwrap().to_owned(), |_| "known".into());
    assert_eq!(hint("antropic/x"), "unknown model `antropic/x`: did you mean `anthropic/x`? ");
    assert_eq!(hint("Openai/x/y:1"), "unknown model `Openai/x/y:1`: did you mean `openai/x/y:1`? ");
    assert_eq!(hint("ofline"), "unknown model `ofline`: did you mean `offline`? ");
    assert_eq!(hint("claude-sonnet-5"), "unknown model `claude-sonnet-5`: did you mean `anthropic/claude-sonnet-5`? ");
    assert_eq!(hint("gpt-5"), "unknown model `gpt-5`: did you mean `openai/gpt-5`? ");
}

#[test]
fn building_reports_an_invalid_script() {
    assert!(ModelSpec::Offline.build().is_ok_and(|model| model.name() == "offline"));
    let missing = ModelSpec::Scripted("no/such/script.json".into()).build().map(|_| ()).map_err(|e| e.to_string());
    assert!(missing.is_err_and(|says| says.starts_with("the script no/such/script.json cannot be read: ")));
}

#[test]
fn local_model_refuses_a_base_url() {
    let says = ModelSpec::Offline.with_base_url("http://127.0.0.1:1").map_err(|error| error.to_string());
    assert_eq!(says, Err("a base URL has no effect with `offline`, which does not call a server".into()));
}

#[cfg(feature = "providers")]
mod providers {
    use super::*;

    #[test]
    fn provider_model_keeps_its_name_and_needs_no_key_elsewhere() {
        let spec = ModelSpec::parse("openai/org/model:tag").unwrap().with_base_url("http://127.0.0.1:8080").unwrap();
        let model = spec.build().unwrap();
        assert_eq!((spec.to_string().as_str(), model.name()), ("openai/org/model:tag", "openai/org/model:tag"));
    }

    #[test]
    fn invalid_provider_model_is_refused_with_the_reason() {
        assert_eq!(parse("openai/"), Err("`openai/` needs a model: write `openai/MODEL`".into()));
        let says = ModelSpec::parse("openai/x").unwrap().with_base_url("h:1").map_err(|error| error.to_string());
        assert!(says.is_err_and(|says| says.starts_with("`h:1` is not a valid base URL: ")));
    }
}

#[cfg(not(feature = "providers"))]
#[test]
fn build_without_providers_reports_it() {
    let says = "`openai/x` is a provider's model, and this build has no providers: build with the feature `providers`, \
                or use `offline` or `scripted:FILE`";
    assert_eq!(told("openai/x"), Err(says.into()));
}
