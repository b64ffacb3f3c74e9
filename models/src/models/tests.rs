use super::*;

use crate::closure::{UnusableModel, fn_model};
use crate::model::{Answer, ModelError};

fn model(name: &str) -> Arc<dyn Model> {
    Arc::new(fn_model(name, |_, _| async { Ok::<_, ModelError>(Answer::of_text("yes")) }))
}

/// Returns models `a`, `b` and `c`, any `made/…`, and the fallback `all`; the pool `smart` is a, b, c.
fn models() -> Models {
    let named = ["a", "b", "c"].map(|name| (Text::from(name), model(name)));
    let source: Arc<ModelSource> = Arc::new(|name| name.starts_with("made/").then(|| model(name)));
    let mut models = Models::new(named.into(), Some(source), model("all"));
    models.add_pool(&"smart".into(), &["a".into(), "b".into(), "c".into()]).unwrap();
    models
}

fn resolve(models: &Models, name: &str) -> (String, bool) {
    let picked = models.pick(&name.into());
    (picked.member.model.name().to_owned(), picked.pool)
}

#[test]
fn name_resolves_to_its_model_then_the_source_then_the_fallback() {
    let models = models();
    let found = ["a", "smart", "made/x", "other"].map(|name| resolve(&models, name));
    assert_eq!(found, [("a".into(), false), ("a".into(), true), ("made/x".into(), false), ("all".into(), false)]);
}

#[test]
fn model_from_the_source_is_created_once() {
    let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let source: Arc<ModelSource> = Arc::new(move |name| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Some(model(name))
    });
    let models = Models::new(HashMap::new(), Some(source), model("all"));
    assert_eq!((resolve(&models, "x"), resolve(&models, "x")), (("x".into(), false), ("x".into(), false)));
    assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 1);
}

/// The control: names that the source does not know are unknown.
#[test]
fn check_of_a_name_keeps_no_model() {
    let models = models();
    let unusable: Vec<_> = (0..1_000).filter_map(|n| models.unusable(&format!("made/{n}").into())).collect();
    assert_eq!((unusable, models.lock().len()), (Vec::new(), 0));
    let unknown = "unknown model \"other\", or its provider's key is missing: name one of the host's own, or a \
                   provider's as PROVIDER/MODEL";
    let asked = ["other", "a", "smart", "all"].map(|name| models.unusable(&name.into()));
    assert_eq!(asked, [Some(unknown.to_owned()), None, None, None]);
}

#[test]
fn model_without_a_key_is_unusable_before_and_after_a_call() {
    let source: Arc<ModelSource> = Arc::new(|name| {
        Some(Arc::new(UnusableModel::new(name, ModelError::new(ModelFail::Auth, "no key"))) as Arc<dyn Model>)
    });
    let models = Models::new(HashMap::new(), Some(source), model("all"));
    let before = models.unusable(&"p/x".into());
    assert_eq!((before.as_deref(), resolve(&models, "p/x")), (Some("no key"), ("p/x".into(), false)));
    assert_eq!(models.unusable(&"p/x".into()).as_deref(), Some("no key"));
}

/// The control: a model in use is kept, and is not created again.
#[test]
fn number_of_unused_created_models_is_bounded() {
    let models = models();
    let used = models.pick(&"made/used".into()).member.model;
    for n in 0..1_000 {
        assert_eq!(resolve(&models, &format!("made/{n}")).0, format!("made/{n}"));
        assert!(models.lock().len() <= MAX_CREATED);
    }
    assert!(Arc::ptr_eq(&used, &models.pick(&"made/used".into()).member.model));
}

#[tokio::test(start_paused = true)]
async fn failed_member_is_skipped_for_a_while() {
    let models = models();
    let (smart, a, b, c): (Text, Text, Text, Text) = ("smart".into(), "a".into(), "b".into(), "c".into());
    models.failed(&a, ModelFail::Unavailable, None);
    models.failed(&b, ModelFail::Rate, Some(30_000));
    assert_eq!(resolve(&models, "smart"), ("c".into(), true));
    assert_eq!((models.after(&smart, &a), models.after(&smart, &c)), (Some(c.clone()), None));
    tokio::time::advance(std::time::Duration::from_secs(10)).await;
    assert_eq!(resolve(&models, "smart"), ("a".into(), true));
    assert_eq!(models.after(&smart, &a), Some(c));
    models.answered(&b);
    assert_eq!(models.after(&smart, &a), Some(b));
}

#[tokio::test(start_paused = true)]
async fn pool_picks_the_first_to_recover_when_all_have_failed() {
    let models = models();
    models.failed(&"a".into(), ModelFail::Auth, None);
    models.failed(&"b".into(), ModelFail::Rate, Some(3_600_000));
    models.failed(&"c".into(), ModelFail::Unavailable, None);
    assert_eq!(resolve(&models, "smart"), ("c".into(), true));
    tokio::time::advance(std::time::Duration::from_secs(300)).await;
    models.failed(&"c".into(), ModelFail::Auth, None);
    assert_eq!(resolve(&models, "smart"), ("a".into(), true), "b is paused for an hour");
    for name in ["a", "b", "c"] {
        models.failed(&name.into(), ModelFail::Auth, None);
    }
    assert_eq!(resolve(&models, "smart"), ("a".into(), true));
    assert_eq!(models.after(&"smart".into(), &"a".into()), None);
}

#[tokio::test(start_paused = true)]
async fn x13_pool_lists_the_resets_of_its_members() {
    let models = models();
    let resets = |name: &str| {
        let resets =
            models.resets(&name.into()).into_iter().map(|(member, after_ms)| (member.name.to_string(), after_ms));
        resets.collect::<Vec<_>>()
    };
    assert_eq!(resets("smart"), []);
    models.failed(&"a".into(), ModelFail::Auth, None);
    models.failed(&"b".into(), ModelFail::Rate, Some(5 * 24 * 3_600_000));
    models.failed(&"c".into(), ModelFail::Unavailable, None);
    assert_eq!(resets("smart"), [("b".to_owned(), 432_000_000), ("c".to_owned(), 10_000)], "the key of a is refused");
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    assert_eq!(resets("smart"), [("b".to_owned(), 431_940_000), ("c".to_owned(), 0)]);
    models.answered(&"c".into());
    assert_eq!((resets("smart").len(), resets("b").len()), (1, 0));
}

#[test]
fn failure_of_the_request_keeps_the_member_healthy() {
    let models = models();
    for error in [ModelFail::BadAnswer, ModelFail::ContextOverflow, ModelFail::InvalidRequest] {
        models.failed(&"a".into(), error, None);
    }
    assert_eq!(resolve(&models, "smart"), ("a".into(), true));
    assert_eq!(models.after(&"smart".into(), &"a".into()), Some("b".into()));
}

#[test]
fn only_a_pool_has_a_next_model() {
    assert_eq!(models().after(&"a".into(), &"a".into()), None);
}

#[test]
fn unusable_pool_is_refused_with_the_reason() {
    let mut models = models();
    let mut says = |members: &[&str]| {
        let members: Vec<Text> = members.iter().map(|name| Text::from(*name)).collect();
        models.add_pool(&"p".into(), &members).map_err(|error| error.to_string())
    };
    assert_eq!(says(&[]), Err("the pool \"p\" has no models: name at least one".into()));
    assert_eq!(says(&["a", "a"]), Err("the pool \"p\" names the model \"a\" twice".into()));
    assert_eq!(
        says(&["a", "ghost"]),
        Err("the pool \"p\" names the unknown model \"ghost\": name one of the host's own, or a provider's as \
             PROVIDER/MODEL"
            .into())
    );
    let many: Vec<String> = (0..17).map(|n| format!("made/{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(says(&many), Err("the pool \"p\" has 17 models; the limit is 16".into()));
    assert_eq!(says(&["made/1", "b"]), Ok(()));
}
