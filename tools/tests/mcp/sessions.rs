//! What sessions that share a server see of its questions, and what a server repeats of its secrets.

use subtend_tools::tool::ToolKey;

use super::*;

impl ServerScene {
    async fn call_in(&self, session: SessionId, tool: &str, args: Value) -> Result<ToolOutput, ToolError> {
        let call = self.invocation(args);
        self.run(tool, ToolInvocation { key: ToolKey { session, ..call.key }, ..call }).await
    }

    /// Returns the schema of the tool `ask` for a session.
    fn schema_of_ask(&self, session: SessionId) -> String {
        let specs = self.registry_of(session).offered(&Authority::allow_all(), None, true);
        specs.into_iter().find(|spec| &*spec.name == "mcp__fake__ask").unwrap().schema.to_string()
    }

    /// Returns the access that a call of `ask` needs in a session.
    fn access_of_ask(&self, session: SessionId, args: &Value) -> String {
        let authority = Authority::of(RuleSet::only(Verdict::Ask));
        let registry = self.registry_of(session);
        match registry.classify("mcp__fake__ask", &args.to_string(), &authority, None, true, &|_| false) {
            Classified::Ready { access: Some(access), .. } => access.resource.to_string(),
            Classified::Ready { access: None, .. } | Classified::Invalid { .. } => {
                panic!("the call must need approval")
            }
        }
    }
}

/// The control: the session whose call asked the question reads it and answers it, also after the other one was asked.
#[tokio::test(flavor = "multi_thread")]
async fn question_is_read_and_answered_by_its_session_only() {
    let scene = ServerScene::mode("plain").await;
    let [one, other] = ["01890a5d-ac96-774b-bcce-000000000001", "01890a5d-ac96-774b-bcce-000000000002"]
        .map(|id| id.parse::<SessionId>().unwrap());
    let output = text(scene.call_in(one, "ask", json!({})).await);
    let id = question(&output);
    let args = json!({"mcp_answers": [{"question": id, "answer": {"city": "Lisbon"}}]});
    assert_eq!([one, other].map(|session| scene.schema_of_ask(session).contains(id)), [true, false]);
    assert!(!scene.schema_of_ask(other).contains("mcp_answers"));
    assert_eq!(
        scene.access_of_ask(other, &args),
        format!(
            "answer to mcp:fake:ask (17 bytes): {{\"city\":\"Lisbon\"}}\nits question is unknown, and will not be answered: \"{id}\""
        )
    );
    assert!(scene.access_of_ask(one, &args).contains("\nits question (13 bytes): \"Which city?\"\n"));
    let refused = scene.call_in(other, "ask", args.clone()).await.unwrap_err();
    assert_eq!(refused.kind, ToolErrorKind::BadArgs);
    assert!(!refused.message.contains("Which city?"), "{}", refused.message);
    // A call of another session takes no question away.
    text(scene.call_in(other, "change", json!({})).await);
    let asked = text(scene.call_in(other, "ask", json!({})).await);
    assert!(asked.contains("Delete all cities?"), "{asked}");
    assert!(scene.access_of_ask(one, &args).contains("Which city?"));
    let other_args = json!({"mcp_answers": [{"question": question(&asked), "answer": {"city": "Rome"}}]});
    let answered = text(scene.call_in(other, "ask", other_args).await);
    assert_eq!(answered, "answered: {\"action\":\"accept\",\"content\":{\"city\":\"Rome\"}}");
}

/// A key with line breaks is escaped in JSON and in quotes, and lists join its lines. The control: the texts themselves.
#[tokio::test(flavor = "multi_thread")]
async fn secret_with_line_breaks_is_redacted_in_all_texts() {
    let token = "-----BEGIN KEY-----\nMIIBVQIB\nhkiG9w0B\n-----END KEY-----";
    let mut config = config("fake", "telling");
    if let ServerTransport::Stdio { env, .. } = &mut config.transport {
        env.insert("TOKEN".to_owned(), token.to_owned());
    }
    let scene = ServerScene::of(vec![config]).await;
    let report = scene.servers.reports().remove(0);
    assert_eq!(report.problems, ["2 of its tools are ignored: they contain a secret of its configuration or login"]);
    let names: Vec<&str> = report.tools.iter().map(|tool| &*tool.name).collect();
    assert!(names.contains(&"mcp__fake__echo") && !names.contains(&"mcp__fake__noise"), "{names:?}");
    let hidden = "[TOKEN redacted]";
    let cases = [
        ("resources", json!({}), format!("note:1 {hidden} (first {hidden} <U+001B>): A note. {hidden}")),
        ("resources", json!({"uri": "note:1"}), format!("[resource note:1 {hidden}]\nnoted {hidden}")),
        ("prompts", json!({}), format!("greet {hidden}(who, how?): Greets. {hidden}")),
        ("prompts", json!({"name": "greet", "arguments": {"who": "Ada"}}), format!("[user]\nGreet  {hidden}Ada.")),
    ];
    for (tool, args, said) in cases {
        assert_eq!(text(scene.call(tool, args).await), said);
    }
    let asked = text(scene.call("ask", json!({})).await);
    assert!(asked.contains(&format!(": \"Is {hidden} your token?\" (it contains a secret")), "{asked}");
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&lines);
    let progress = Progress::to(move |line| sink.lock().unwrap().push(line.to_string()));
    text(scene.run("progress", ToolInvocation { progress, ..scene.invocation(json!({})) }).await);
    assert_eq!(*lines.lock().unwrap(), [format!("1/3 one {hidden} <U+001B>[2J")]);
}
