use serde_json::json;
use subtend_actors::prices::Price;
use subtend_agents::profile::Inherit;
use subtend_agents::template::MinionTemplate;

use super::*;

fn project(text: &str) -> Result<Layer, ConfigError> {
    Layer::file(Origin::Project("w/subtend.yaml".into()), text)
}

fn user(text: &str) -> Layer {
    Layer::file(Origin::User("home/subtend.yaml".into()), text).unwrap()
}

fn load(text: &str) -> Loaded {
    Loaded::of([project(text).unwrap()]).unwrap()
}

fn load_error(text: &str) -> String {
    match project(text).and_then(|layer| Loaded::of([layer])) {
        Err(error) => error.to_string(),
        Ok(loaded) => format!("taken: {loaded:?}"),
    }
}

fn warnings(text: &str) -> Vec<String> {
    load(text).warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn shell_settings_are_read_from_the_users_file_only() {
    let text = "shell: {environment: [HTTPS_PROXY, \"AWS_*\"]}";
    let own = Loaded::of([user(text)]).unwrap();
    assert_eq!(own.config.commands().environment, ["HTTPS_PROXY".into(), "AWS_*".into()]);
    let limits = Loaded::of([user("shell: {processes: 10, cpu_seconds: 60}")]).unwrap().config.commands().limits;
    let expected = subtend_tools::commands::CommandLimits { processes: 10, cpu_seconds: 60, ..Default::default() };
    assert_eq!(limits, expected);
    assert!(load_error("shell: {processes: 5}").contains("`shell.processes`: a workspace cannot set it"));
    let why = "a workspace cannot set it: set it in your own file (`subtend config set --user`)";
    assert_eq!(load_error(text), format!("w/subtend.yaml: `shell.environment`: {why}"));
    let bad = Loaded::of([user("shell: {environment: [\"A=b\"]}")]).unwrap_err().to_string();
    assert!(bad.contains("`A=b` is not the name of a variable: give a name such as `HTTPS_PROXY`"), "{bad}");
}

#[test]
fn k25_default_config_enables_task_and_default_limits() {
    let loaded = Loaded::of([]).unwrap();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.config.limits, Limits::default());
    assert_eq!(loaded.config.tools.offered_dialects(), [Dialect::Task]);
    assert!(loaded.values.iter().all(|setting| setting.origin == Origin::Default));
    assert_eq!(loaded.default_model(), DefaultModel::Unset);
}

#[test]
fn titles_and_summaries_follow_configuration_or_provider() {
    let options = |text: &str, calls| {
        let options = load(text).config.options(calls);
        (options.titles, options.summaries)
    };
    assert_eq!([options("", false), options("", true)], [(false, false), (true, true)]);
    assert_eq!(options("sessions: {titles: true}", false), (true, false));
    assert_eq!(options("sessions: {titles: false, summaries: true}", true), (false, true));
    let variable = Layer::variables([("SUBTEND_SESSIONS_TITLES", "false")]).unwrap();
    let config = Loaded::of([project("sessions: {titles: true}").unwrap(), variable]).unwrap();
    assert_eq!(config.config.sessions.titles, Some(false));
    assert!(
        load_error("sessions: {titles: often}").contains("`sessions.titles` is \"often\", and must be true or false")
    );
}

#[test]
fn every_key_of_a_file_is_read() {
    let text = r#"
agent: plan
sessions: {titles: true}
llm:
  default_pool: smart
  pools:
    smart: [offline]
  context_windows: {"ollama/*": 32768}
  output_tokens: {"ollama/*": 4096}
subagents: {enabled: false, messages: true}
tools:
  task: {enabled: false}
  spawn:
    enabled: true
    profiles:
      researcher:
        bootstrap_files: ["SOUL.md", "AGENTS.md"]
        system_prompt_file: "RESEARCHER.md"
        system_prompt: "Focus on academic sources."
        tools: [web_search, shell, read_file]
        pool: "smart"
        prompt: inherit
  minion:
    enabled: true
    options: {systemPrompt: "Be brief.", model: offline, rollbackOnError: true}
remote_tools:
  build: {description: "Builds.", input: {type: object, properties: {target: {}}}, idempotent: true, deadline_ms: 60000}
limits: {turns: 7, run_ms: none, tokens: 1000, park: off}
web: {internal_hosts: ["localhost:8080"], search: {engine: searxng, url: "http://localhost:8888"}}
prices:
  "gpt-4.1*": {input: 2, output: 8, cache_read: 0.5}
"#;
    let researcher = Profile {
        bootstrap_files: vec!["SOUL.md".into(), "AGENTS.md".into()],
        system_prompt_file: Some("RESEARCHER.md".into()),
        system_prompt: Some("Focus on academic sources.".into()),
        tools: vec!["web_search".into(), "shell".into(), "read_file".into()],
        pool: Some("smart".into()),
        prompt: Inherit::Inherit,
        ..Profile::default()
    };
    let mut price = Price::new(2.0, 8.0);
    price.cache_read = Some(0.5);
    let (system_prompt, model) = ("Be brief.".into(), Some("offline".into()));
    let options = MinionOptions { system_prompt, model, rollback_on_error: true };
    let build = RemoteToolConfig {
        description: "Builds.".into(),
        input: serde_json::from_str(r#"{"type": "object", "properties": {"target": {}}}"#).unwrap(),
        idempotent: true,
        deadline_ms: Some(60_000),
        ..RemoteToolConfig::default()
    };
    let expected = Config {
        sessions: SessionsConfig { titles: Some(true), summaries: None },
        host: HostConfig::default(),
        agent: "plan".into(),
        llm: Llm {
            model: None,
            default_pool: Some("smart".into()),
            pools: [("smart".into(), vec!["offline".into()])].into(),
            context_windows: [("ollama/*".into(), 32_768.try_into().unwrap())].into(),
            output_tokens: [("ollama/*".into(), 4_096.try_into().unwrap())].into(),
        },
        subagents: Subagents { enabled: false, messages: true },
        tools: Tools {
            task: ToolSwitch { enabled: false },
            spawn: Spawn { enabled: true, profiles: [("researcher".into(), researcher)].into() },
            minion: Minion { enabled: true, options: options.clone(), ..Minion::default() },
            ..Tools::default()
        },
        mcp: Mcp::default(),
        remote_tools: [("build".into(), build)].into(),
        shell: Shell::default(),
        web: Web {
            internal_hosts: vec!["localhost:8080".into()],
            search: SearchConfig {
                engine: Some(EngineName::Searxng),
                url: Some("http://localhost:8888".into()),
                key_variable: None,
            },
        },
        limits: Limits {
            turns: 7,
            run_ms: None,
            tokens: Some(1_000),
            park: subtend_session::limits::Parking::Off,
            ..Limits::default()
        },
        prices: Prices::new().with("gpt-4.1*", price),
    };
    let loaded = Loaded::of([user(text)]).unwrap();
    assert_eq!((&loaded.config, &*loaded.warnings), (&expected, &[][..]));
    assert_eq!(loaded.default_model(), DefaultModel::Pool("smart".into()));
    let read = |path: &str| Ok(format!("{path}."));
    let dialects = loaded.config.dialects(&read).unwrap();
    assert_eq!((dialects.offered.as_slice(), dialects.offered()), (&[Dialect::Spawn, Dialect::Minion][..], &[][..]));
    assert_eq!((dialects.profiles.names(), dialects.minion), (vec!["researcher".into()], options));
}

#[test]
fn search_engine_requires_exactly_its_own_settings() {
    let layer = |text: &str| Layer::file(Origin::User("home/subtend.yaml".into()), text);
    let why = |text: &str| match layer(text).and_then(|layer| Loaded::of([layer])) {
        Err(error) => error.to_string(),
        Ok(loaded) => format!("taken: {:?}", loaded.config.web),
    };
    for (web, message) in [
        (
            "search: {engine: searxng}",
            "`web.search.engine`: is `searxng`, which needs an address: set `web.search.url`",
        ),
        (
            "search: {url: \"http://a\"}",
            "`web.search.url`: is for `web.search.engine: searxng`: set that engine, or omit this key",
        ),
        ("search: {engine: brave, url: \"http://a\"}", "`web.search.url`: is for `web.search.engine: searxng`"),
        ("search: {key_variable: KEY}", "`web.search.key_variable`: is for `web.search.engine: brave`"),
        ("search: {engine: google}", "`web.search.engine` is \"google\", and must be"),
    ] {
        let error = why(&format!("web: {{{web}}}"));
        assert!(error.contains(message), "{web}: {error}");
    }
    #[cfg(feature = "web")]
    for (web, message) in [
        ("internal_hosts: [\"http://a\"]", "`web.internal_hosts`: invalid host `http://a`"),
        (
            "search: {engine: searxng, url: \"ftp://a\"}",
            "`web.search.url`: the address of the search engine cannot be used",
        ),
        (
            "search: {engine: searxng, url: \"http://me:hunter2@a\"}",
            "`web.search.url`: the address of the search engine cannot",
        ),
    ] {
        let error = why(&format!("web: {{{web}}}"));
        assert!(error.contains(message) && !error.contains("hunter2"), "{web}: {error}");
    }
}

#[test]
fn r8_variables_override_project_file_overrides_user_file() {
    let user = || user("limits: {turns: 1, live_runs: 3, run_ms: 1, spawns: 1}\nagent: mine");
    let project = || project("limits: {turns: 2, live_runs: 2, run_ms: 2}").unwrap();
    let variables = [("SUBTEND_MAX_CONCURRENT", "4"), ("SUBTEND_TIMEOUT_MS", "none"), ("SUBTEND_ENABLED", "false")];
    let variables = || Layer::variables(variables).unwrap();
    let expected = Limits { turns: 2, live_runs: 4, run_ms: None, spawns: 1, ..Limits::default() };
    for layers in [[user(), project(), variables()], [variables(), project(), user()]] {
        let loaded = Loaded::of(layers).unwrap();
        assert_eq!((&loaded.config.limits, loaded.config.subagents.enabled), (&expected, false));
        let origin_of = |key: &str| loaded.origin(&key.parse().unwrap()).to_string();
        assert_eq!(
            [
                "limits.turns",
                "limits.live_runs",
                "limits.run_ms",
                "limits.spawns",
                "agent",
                "subagents.enabled",
                "limits.queue"
            ]
            .map(origin_of),
            [
                "w/subtend.yaml",
                "$SUBTEND_MAX_CONCURRENT",
                "$SUBTEND_TIMEOUT_MS",
                "home/subtend.yaml",
                "home/subtend.yaml",
                "$SUBTEND_ENABLED",
                "default"
            ]
        );
    }
}

#[test]
fn r8_named_variables_have_documented_defaults() {
    let values = Loaded::of([]).unwrap().values;
    let default = |variable: &str| {
        values.iter().find(|one| one.variable.as_deref() == Some(variable)).map(|one| one.value.clone())
    };
    assert_eq!(
        ["SUBTEND_ENABLED", "SUBTEND_MAX_CONCURRENT", "SUBTEND_TIMEOUT_MS", "SUBTEND_MODEL"].map(default),
        [Some(json!(true)), Some(json!(3)), Some(json!(480_000)), Some(json!(null))]
    );
    assert_eq!(default("SUBTEND_TOOLS_MINION_OPTIONS_SYSTEM_PROMPT"), Some(json!("")));
    assert_eq!(default("SUBTEND_TOOLS_SPAWN_ENABLED"), Some(json!(false)), "S8");
}

#[test]
fn pool_price_and_profile_are_resolved_as_a_whole() {
    let user = user(
        "llm: {pools: {a: [offline], b: [offline]}}\ntools: {spawn: {profiles: {p: {tools: [read], description: Old.}}}}",
    );
    let project =
        project("llm: {pools: {b: [ollama/x]}}\ntools: {spawn: {profiles: {p: {description: New.}}}}").unwrap();
    let loaded = Loaded::of([user, project]).unwrap();
    let pools: Vec<_> = loaded.config.llm.pools.iter().map(|(name, of)| (&**name, &*of[0])).collect();
    assert_eq!(pools, [("a", "offline"), ("b", "ollama/x")]);
    let profile = Profile { description: "New.".into(), ..Profile::default() };
    assert_eq!(loaded.config.tools.spawn.profiles["p"], profile);
    assert_eq!(loaded.origin(&Key::from(["llm", "pools", "a"])).kind(), "user");
    assert_eq!(loaded.origin(&Key::from(["llm", "pools", "b"])).kind(), "project");
}

#[test]
fn stronger_source_chooses_between_model_and_pool() {
    let chosen = |layers: Vec<Layer>| Loaded::of(layers).unwrap().default_model();
    let pools = "llm: {default_pool: p, pools: {p: [offline]}}";
    let model = DefaultModel::Model("ollama/x".into());
    assert_eq!(chosen(vec![user("llm: {model: ollama/x}"), project(pools).unwrap()]), DefaultModel::Pool("p".into()));
    assert_eq!(chosen(vec![user(pools), project("llm: {model: ollama/x}").unwrap()]), model);
    let variable = Layer::variables([("SUBTEND_MODEL", "ollama/x")]).unwrap();
    assert_eq!(chosen(vec![project(pools).unwrap(), variable]), model);
    assert_eq!(
        load_error("llm: {default_pool: p, model: offline, pools: {p: [offline]}}"),
        "w/subtend.yaml: `llm.default_pool`: cannot be combined with `llm.model`: omit one of them"
    );
}

#[test]
fn bad_value_error_names_file_key_value_and_range() {
    for (text, message) in [
        ("limits: {turns: many}", "`limits.turns` is \"many\", and must be a whole number from 1 to 4294967295"),
        ("limits: {park: sometimes}", "`limits.park` is \"sometimes\", and must be on or off"),
        ("limits: {turns: 0}", "`limits.turns` is 0, and must be a whole number from 1 to 4294967295"),
        ("limits: {run_ms: -1}", "`limits.run_ms` is -1, and must be a whole number of at least 1, or none"),
        ("limits: {queue_ms: none}", "`limits.queue_ms` is \"none\", and must be a whole number of at least 0"),
        ("subagents: {enabled: yes}", "`subagents.enabled` is \"yes\", and must be true or false"),
        ("agent: [a]", "`agent` is [\"a\"], and must be a string"),
        ("llm: {pools: {p: offline}}", "`llm.pools.p` is \"offline\", and must be a list of strings"),
        ("llm: offline", "`llm` is \"offline\", and must be a map of keys to values"),
        ("- a", "it holds [\"a\"], and must hold a map of keys to values"),
        (
            "tools: {spawn: {profiles: {p: {prompt: mine}}}}",
            "`tools.spawn.profiles.p.prompt` is \"mine\", and must be own or inherit",
        ),
        (
            "prices: {\"gpt-4.1\": {input: 1}}",
            "`prices.\"gpt-4.1\"` is {\"input\":1}, and must be a map that also has the key `output`",
        ),
        ("prices: {m: {input: -1, output: 1}}", "`prices.m.input` is -1, and must be a number from 0 to 1000000"),
        (
            "llm: {default_pool: q, pools: {p: [offline]}}",
            "`llm.default_pool`: unknown pool `q`; pools under `llm.pools`: p",
        ),
        ("llm: {pools: {p: []}}", "`llm.pools.p`: names 0 models: it must have 1 to 16"),
        ("llm: {pools: {p: [offline, offline]}}", "`llm.pools.p`: names `offline` twice: name each model once"),
    ] {
        assert_eq!(load_error(text), format!("w/subtend.yaml: {message}"), "{text}");
    }
    assert!(load_error("llm: {model: gpt}").starts_with("w/subtend.yaml: `llm.model`: unknown model `gpt`"));
    assert!(load_error("agent: A B").starts_with("w/subtend.yaml: `agent`: `A B` is not an agent's name"));
    assert!(load_error("a: [").starts_with("w/subtend.yaml is not valid YAML: "));
    assert!(load_error("a: 1\na: 2").starts_with("w/subtend.yaml is not valid YAML: "), "keys twice");
    let variable = Layer::variables([("SUBTEND_TIMEOUT_MS", "soon")]).unwrap_err().to_string();
    let message = "$SUBTEND_TIMEOUT_MS: `limits.run_ms` is \"soon\", and must be a whole number of at least 1, or none";
    assert_eq!(variable, message);
}

#[test]
fn unknown_key_is_a_warning_with_a_suggestion() {
    assert_eq!(
        warnings(
            "limts: {turns: 1}\nlimits: {truns: 1}\ntools: {spawn: {profiles: {p: {systm_prompt: x}}}}\nwhatever: 1"
        ),
        [
            "w/subtend.yaml: unknown key `limits.truns` has no effect; did you mean `turns`?",
            "w/subtend.yaml: unknown key `limts` has no effect; did you mean `limits`?",
            "w/subtend.yaml: unknown key `tools.spawn.profiles.p.systm_prompt` has no effect; did you mean \
             `system_prompt`?",
            "w/subtend.yaml: unknown key `whatever` has no effect",
        ]
    );
    let other = [
        ("SUBTEND_DATA", "/x"),
        ("SUBTEND_STORE", "memory"),
        ("HOME", "/y"),
        ("SUBTEND_MODEL", " "),
        ("SUBTEND_MAX_CONCURENT", "1"),
    ];
    let texts: Vec<_> = Layer::variables(other).unwrap().warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["$SUBTEND_MAX_CONCURENT: unknown variable without effect: did you mean `SUBTEND_MAX_CONCURRENT`?"]
    );
    assert_eq!(
        warnings("tools: {spawn: {profiles: {p: {pool: smart}}}}"),
        [
            "w/subtend.yaml: `tools.spawn.profiles.p` names the pool `smart`, which does not exist: the caller's model is used"
        ]
    );
}

#[test]
fn empty_values_change_nothing() {
    assert_eq!(load("agent:\nlimits:\n  turns:\nllm: ~\n").config, Config::default());
    for empty in ["", "# nothing yet\n", "---\n"] {
        assert_eq!(load(empty).config, Config::default(), "{empty:?}");
    }
}

#[test]
fn profile_with_a_missing_file_is_refused_at_load() {
    let config = load("tools: {spawn: {profiles: {p: {system_prompt_file: GONE.md}}}}").config;
    let missing = |_: &str| Err("no such file".to_owned());
    assert_eq!(
        config.dialects(&missing).unwrap_err().to_string(),
        "the profile `p` cannot be used: its `system_prompt_file` `GONE.md` cannot be read: no such file"
    );
}

#[test]
fn key_parses_values_or_names_the_expected_kind() {
    let value = |key: &str, text: &str| {
        let key: Key = key.parse().unwrap();
        match key.value(text) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(bad)) => Err(bad.to_string()),
            Err(bad) => Err(bad.to_string()),
        }
    };
    assert_eq!(value("limits.turns", "7"), Ok(json!(7)));
    assert_eq!(value("limits.run_ms", "none"), Ok(json!("none")));
    assert_eq!(value("agent", "7"), Ok(json!("7")));
    assert_eq!(value("llm.pools.smart", "[offline, a/b]"), Ok(json!(["offline", "a/b"])));
    assert_eq!(value("llm.pools.smart", "offline, a/b"), Ok(json!(["offline", "a/b"])));
    assert_eq!(value("prices.\"gpt-4.1\".input", "1.5"), Ok(json!(1.5)));
    assert_eq!(
        value("limits.turns", "many"),
        Err("`limits.turns` is \"many\", and must be a whole number from 1 to 4294967295".into())
    );
    assert_eq!(value("limits.truns", "1"), Err("unknown key `limits.truns`: did you mean `turns`?".into()));
    assert_eq!(
        value("nothing", "1"),
        Err("unknown key `nothing`; known keys: agent, host, limits, llm, mcp, prices, remote_tools, sessions, shell, subagents, tools, web"
            .into())
    );
    assert_eq!(value("agent.name", "x"), Err("unknown key `agent.name`: its parent is a string".into()));
    assert_eq!(
        value("tools.spawn.profiles.p", "{pol: x}"),
        Err("`tools.spawn.profiles.p.pol` is {\"pol\":\"x\"}, and must be left out: the key is unknown".into())
    );
}

const WRITTEN: &str = "\
# For all users here.
llm:
  # two of them
  pools:
    smart: [offline] # for now
  default_pool: smart   # used

limits:
  turns: 5 # few
tools:
    spawn:
        profiles:
            coder:
                tools:
                - read
                - write
                # end of the list
                description: |
                  Writes code: all of it.
                  limits: none
";

fn edit(text: &str, key: &str, value: &str) -> Result<String, String> {
    let key: Key = key.parse().unwrap();
    let value = key.value(value).unwrap().unwrap();
    set(text, &key, &value).map_err(|error| error.to_string())
}

#[test]
fn set_changes_only_the_given_value() {
    let changed = |key: &str, value: &str, old: &str, new: &str| {
        assert!(WRITTEN.contains(old) || old.is_empty());
        let expected = if old.is_empty() { format!("{WRITTEN}{new}") } else { WRITTEN.replacen(old, new, 1) };
        assert_eq!(edit(WRITTEN, key, value), Ok(expected), "{key}");
    };
    changed("limits.turns", "9", "turns: 5 # few", "turns: 9 # few");
    changed("limits.spawns", "9", "turns: 5 # few\n", "turns: 5 # few\n  spawns: 9\n");
    changed("llm.default_pool", "cheap", "default_pool: smart   # used", "default_pool: cheap   # used");
    changed("llm.pools.smart", "[a/b, offline]", "[offline] # for now", "[a/b, offline] # for now");
    changed("llm.pools.cheap", "[offline]", "# for now\n", "# for now\n    cheap: [offline]\n");
    changed("tools.spawn.enabled", "true", "limits: none\n", "limits: none\n        enabled: true\n");
    changed(
        "tools.spawn.profiles.coder.tools",
        "[list]",
        "tools:\n                - read\n                - write\n",
        "tools: [list]\n",
    );
    changed(
        "tools.spawn.profiles.a.pool",
        "smart",
        "limits: none\n",
        "limits: none\n            a:\n              pool: smart\n",
    );
    changed(
        "tools.spawn.profiles.coder.description",
        "No: really",
        "description: |\n                  Writes code: all of it.\n                  limits: none\n",
        "description: \"No: really\"\n",
    );
    changed("prices.\"gpt-4.1*\".input", "2", "", "prices:\n  \"gpt-4.1*\":\n    input: 2.0\n");
    assert_eq!(edit("", "agent", "plan"), Ok("agent: plan\n".into()));
    assert_eq!(edit("# mine", "agent", "no"), Ok("agent: \"no\"\n# mine\n".into()));
    assert_eq!(edit("limits: {}\n", "limits.turns", "2"), Ok("limits:\n  turns: 2\n".into()));
    assert_eq!(edit("limits:\n", "limits.turns", "2"), Ok("limits:\n  turns: 2\n".into()));
    assert_eq!(edit("\"agent\": 'a # b' # c\n", "agent", "d"), Ok("\"agent\": d # c\n".into()));
}

#[test]
fn set_refuses_files_it_cannot_edit_by_line() {
    assert_eq!(
        edit("limits: {turns: 5}\n", "limits.spawns", "2"),
        Err("the parent of the key is written on one line. Write `limits.spawns: 2` there by hand".into())
    );
    // The change would remove the anchor of an alias.
    let anchored = "agent: &a plan\nllm:\n  default_pool: *a\n";
    let message = "one value of it cannot be changed without changing others. Write `agent: build` there by hand";
    assert_eq!(edit(anchored, "agent", "build"), Err(message.into()));
    assert!(edit("a: [", "agent", "x").unwrap_err().starts_with("the file is not valid YAML"));
}

#[test]
fn m3_tool_options_merge_one_by_one_with_their_sources() {
    let user = user("tools: {options: {digest: {images: false, notes: Mine.}}}");
    let project = project("tools: {options: {digest: {notes: Ours., model: offline}, other: {on: true}}}").unwrap();
    let loaded = Loaded::of([user, project]).unwrap();
    let given = |value: serde_json::Value| value.as_object().cloned().unwrap();
    let expected: subtend_tools::option::ToolOptions = [
        ("digest".into(), given(json!({"images": false, "notes": "Ours.", "model": "offline"}))),
        ("other".into(), given(json!({"on": true}))),
    ]
    .into();
    assert_eq!((loaded.config.tool_options(), &*loaded.warnings), (expected, &[][..]));
    let shown: Vec<_> = loaded
        .values
        .iter()
        .filter(|one| one.key.to_string().starts_with("tools.options"))
        .map(|one| (one.key.to_string(), one.value.clone(), one.origin.to_string()))
        .collect();
    let row = |key: &str, value: serde_json::Value, origin: &str| (key.to_owned(), value, origin.to_owned());
    assert_eq!(
        shown,
        [
            row("tools.options.digest.images", json!(false), "home/subtend.yaml"),
            row("tools.options.digest.model", json!("offline"), "w/subtend.yaml"),
            row("tools.options.digest.notes", json!("Ours."), "w/subtend.yaml"),
            row("tools.options.other.on", json!(true), "w/subtend.yaml"),
        ]
    );
    let bad = |text: &str| Layer::file(Origin::Project("w/subtend.yaml".into()), text).unwrap_err().to_string();
    let number = bad("tools: {options: {digest: {images: 7}}}");
    assert!(
        number.contains("tools.options.digest.images") && number.contains("true or false, or a string"),
        "{number}"
    );
}

#[test]
fn m3_minion_options_under_the_wrong_key_name_the_right_one() {
    let text = load_error("tools: {options: {minion: {model: offline}}}");
    let message =
        "w/subtend.yaml: `tools.options.minion.model`: the options of `minion` are under `tools.minion.options`";
    assert!(text.starts_with(message), "{text}");
}

/// Otherwise the default model would silently answer instead.
#[test]
fn m8_unknown_model_for_minions_is_refused() {
    for model in ["nosuch/none", "pool:cheap"] {
        let text = load_error(&format!("tools: {{minion: {{options: {{model: \"{model}\"}}}}}}"));
        let message = format!("w/subtend.yaml: `tools.minion.options.model`: unknown model `{model}`");
        assert!(text.starts_with(&message), "{text}");
    }
    let pooled = "llm: {pools: {cheap: [offline]}}\ntools: {minion: {options: {model: \"pool:cheap\"}}}";
    assert_eq!(warnings(pooled), [""; 0]);
}

#[test]
fn m10_templates_are_read_and_invalid_ones_are_refused() {
    let load = |text: &str| Loaded::of([project(&format!("tools: {{minion: {{templates: {text}}}}}")).unwrap()]);
    let text = "{reviewer: {message: 'Review {path}.', model: offline, enabledTools: [read], enableWeb: false}}";
    let template = MinionTemplate {
        message: Some("Review {path}.".into()),
        model: Some("offline".into()),
        enabled_tools: Some(vec!["read".into()]),
        enable_web: Some(false),
        ..MinionTemplate::default()
    };
    let dialects = load(text).unwrap().config.dialects(&|path| Err(path.to_owned())).unwrap();
    assert_eq!(dialects.templates, [("reviewer".into(), template)].into());
    let refused = |text: &str| load(text).unwrap_err().to_string();
    let bad_name = "w/subtend.yaml: `tools.minion.templates.\"A b\"`: a name has 1 to 64 of";
    assert!(refused("{A b: {}}").starts_with(bad_name), "{}", refused("{A b: {}}"));
    let bad_tool = refused("{a: {enabledTools: ['b c']}}");
    assert!(bad_tool.contains("its `enabledTools` name \"b c\", which is not a valid name of a tool"), "{bad_tool}");
    let bad_model = refused("{a: {model: nosuch}}");
    assert!(
        bad_model.starts_with("w/subtend.yaml: `tools.minion.templates.a.model`: unknown model `nosuch`"),
        "{bad_model}"
    );
    let script = refused("{a: {model: 'scripted:a.json'}}");
    assert!(script.contains("`tools.minion.templates.a.model`: `scripted:a.json` is a script"), "{script}");
}

#[test]
fn d6_remote_tools_are_read_from_the_users_file_only() {
    let message = "remote_tools: {build: {description: Builds.}}";
    let why = "a workspace cannot set it: set it in your own file (`subtend config set --user`)";
    assert_eq!(load_error(message), format!("w/subtend.yaml: `remote_tools.build`: {why}"));
    let own =
        |text: &str| Layer::file(Origin::User("home/subtend.yaml".into()), text).and_then(|layer| Loaded::of([layer]));
    assert_eq!(own(message).unwrap().config.remote_tools["build"].lease_ms, 30_000);
    for wrong in ["lease_ms: 999", "lease_ms: 600001", "deadline_ms: 0", "input: string", "idempotent: maybe"] {
        let error =
            own(&format!("remote_tools: {{build: {{description: Builds., {wrong}}}}}")).unwrap_err().to_string();
        let key = wrong.split(':').next().unwrap();
        assert!(error.contains(&format!("`remote_tools.build.{key}` is")), "{error}");
    }
}
