//! Agents that are registered and removed while a host runs.

use crate::support::*;
use subtend_agents::catalog::MAX_FILES;

const CRITIC: &str = "---\nmode: all\ndescription: Finds errors.\n---\nFind errors.\n";

#[tokio::test]
async fn registered_agent_opens_later_sessions_until_it_is_removed() {
    let (host, app, before) = hosted_with("Good morning.").await;
    let open = json!({"agent": "critic"});
    assert_eq!(post(&app, "/v1/sessions", &open).await.problem(), (422, "unknown_agent".to_owned()));
    let put = async |text: &str| {
        let body = json!({"text": text}).to_string();
        request(&app, Method::PUT, "/v1/agents/critic", &[("content-type", "application/json")], &body).await
    };
    let registered = put(CRITIC).await.json();
    let expected = json!({
        "name": "critic", "mode": "all", "description": "Finds errors.", "model": null, "tools": null, "pickable": true,
        "spawnable": true, "hash": registered["agent"]["hash"],
    });
    assert_eq!(registered, json!({"agent": expected, "replaced": false, "warnings": []}));
    assert_eq!(get(&app, "/v1/agents/critic").await.json(), expected);
    assert_eq!(post(&app, "/v1/sessions", &open).await.status, StatusCode::CREATED);
    assert_eq!(put(CRITIC).await.json()["replaced"], json!(true));
    let reload = format!("/v1/sessions/{before}/reload");
    let reloaded = post(&app, &reload, &json!(null)).await.json();
    assert_eq!(reloaded, json!({"added": ["critic"], "changed": [], "removed": [], "refused": []}));
    let delete = async || request(&app, Method::DELETE, "/v1/agents/critic", &[], "").await;
    assert_eq!(delete().await.status, StatusCode::NO_CONTENT);
    assert_eq!(delete().await.problem(), (404, "agent_not_found".to_owned()));
    assert_eq!(post(&app, "/v1/sessions", &open).await.problem(), (422, "unknown_agent".to_owned()));
    finish(host, app).await;
}

/// Built-in agents can be replaced like others. The control: an earlier session has the title of the built-in agent.
#[tokio::test]
async fn registered_title_agent_names_later_sessions() {
    let model = fn_model("own", |request, _| async move {
        let is_registered = request.system.contains("Write a number.");
        Ok(Answer::of_text(match &*request.agent {
            "title" if is_registered => "Seven",
            "title" => "A greeting",
            _ => "Hello.",
        }))
    });
    let options = Options { titles: true, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().model(Arc::new(model)).options(options).start().await.expect("a runtime");
    let host = Host::new(runtime, HostOptions::default());
    let app = host.router();
    let text = "---\nmode: all\nhidden: true\n---\nWrite a number.\n";
    for title in ["A greeting", "Seven"] {
        let id = open_and_finish(&app, "Good morning.").await;
        host.runtime().services_done().await;
        assert_eq!(get(&app, &format!("/v1/sessions/{id}")).await.json()["title"], title);
        let (body, headers) = (json!({"text": text}).to_string(), [("content-type", "application/json")]);
        let registered = request(&app, Method::PUT, "/v1/agents/title", &headers, &body).await;
        assert_eq!(registered.json()["replaced"], json!(true), "{}", registered.body);
    }
    finish(host, app).await;
}

/// A host accepts 1,000 agents. The controls: the last one within the limit, a replacement, and one after a removal.
#[tokio::test]
async fn agent_above_the_limit_is_not_registered() {
    let (host, app) = hosted().await;
    let put = async |name: &str| {
        let (body, headers) = (json!({"text": CRITIC}).to_string(), [("content-type", "application/json")]);
        request(&app, Method::PUT, &format!("/v1/agents/{name}"), &headers, &body).await
    };
    for n in host.runtime().catalog().all().count()..MAX_FILES {
        assert_eq!(put(&format!("critic-{n}")).await.status, StatusCode::OK, "{n}");
    }
    let refused = put("critic").await;
    assert_eq!(refused.problem(), (422, "invalid_agent".to_owned()));
    assert_eq!(refused.json()["detail"], "there are 1000 agents already, the limit of a host");
    assert_eq!(get(&app, "/v1/agents/critic").await.problem(), (404, "agent_not_found".to_owned()));
    assert_eq!(put("critic-999").await.json()["replaced"], json!(true));
    request(&app, Method::DELETE, "/v1/agents/critic-999", &[], "").await;
    assert_eq!(put("critic").await.status, StatusCode::OK);
    assert_eq!(host.runtime().catalog().all().count(), MAX_FILES);
    finish(host, app).await;
}

#[tokio::test]
async fn unusable_agent_text_registers_nothing() {
    let (host, app) = hosted().await;
    let long = format!("---\nmode: all\n---\n{}", "x".repeat(256 << 10));
    for (text, why) in [
        ("no front matter", "front matter"),
        ("---\nname: other\nmode: all\n---\nHello.\n", "its `name` is `other`"),
        ("---\nmode: all\npermissions: {\"fs.reed\": deny}\n---\nHello.\n", "fs.reed"),
        (
            "---\nmode: all\npermissions: {\"task:unknown\": allow}\n---\nHello.\n",
            "`permissions` `task:unknown`: unknown agent",
        ),
        (&long, "more than 262144"),
    ] {
        let body = json!({"text": text}).to_string();
        let headers = [("content-type", "application/json")];
        let refused = request(&app, Method::PUT, "/v1/agents/critic", &headers, &body).await;
        assert_eq!(refused.problem(), (422, "invalid_agent".to_owned()), "{text:.40}");
        assert!(refused.body.contains(&why.replace('"', "\\\"")), "{why}: {}", refused.body);
    }
    assert_eq!(get(&app, "/v1/agents/critic").await.problem(), (404, "agent_not_found".to_owned()));
    finish(host, app).await;
}

/// Clients register and remove ever more names. The control: a name of before.
#[tokio::test]
async fn endless_names_of_agents_are_refused() {
    let (host, app) = hosted().await;
    let put = async |name: &str| {
        let (body, headers) = (json!({"text": CRITIC}).to_string(), [("content-type", "application/json")]);
        request(&app, Method::PUT, &format!("/v1/agents/{name}"), &headers, &body).await
    };
    let delete = async |name: &str| request(&app, Method::DELETE, &format!("/v1/agents/{name}"), &[], "").await;
    for n in 0..MAX_FILES {
        let name = format!("critic-{n}");
        assert_eq!([put(&name).await.status, delete(&name).await.status], [StatusCode::OK, StatusCode::NO_CONTENT]);
    }
    let refused = (422, "invalid_agent".to_owned());
    assert_eq!([put("critic").await.problem(), delete("general").await.problem()], [refused.clone(), refused]);
    assert_eq!(put("critic-0").await.status, StatusCode::OK);
    finish(host, app).await;
}

/// Clients register large agents at the same time, whose models are checked meanwhile.
#[tokio::test]
async fn agents_registered_at_once_take_bounded_memory() {
    let (host, app) = hosted().await;
    let text = format!("---\nmode: all\nmodel: other\ndescription: d\n---\n{}\n", "x".repeat(200_000));
    let (body, headers) = (json!({"text": text}).to_string(), [("content-type", "application/json")]);
    let places: Vec<String> = (0..22).map(|n| format!("/v1/agents/a{n}")).collect();
    let puts = places.iter().map(|place| request(&app, Method::PUT, place, &headers, &body));
    let answers = futures_util::future::join_all(puts).await;
    let accepted = answers.iter().filter(|answer| answer.status == StatusCode::OK).count();
    let bytes = host.runtime().catalog().bytes();
    assert!(bytes < 5 << 20 && accepted > 3, "{bytes} {accepted}");
    finish(host, app).await;
}
