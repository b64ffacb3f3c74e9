//! Trust of workspaces, and tokens.

use super::super::page::Page;

#[test]
fn errors_of_trust_match_their_snapshot() {
    let mut page = Page::new();
    page.variable("SUBTEND_TRUST", "");
    page.call("trust");
    page.call("trust gone");
    page.call("trust --list");
    page.user.file("subtend.yaml", "agent: plan\n");
    page.user.file(".subtend/agents/poet.md", "---\nmode: all\n---\nYou write.\n");
    page.call("trust");
    page.call("run --model offline --store memory --quiet hi");
    page.call("run --agent poet --model offline --store memory hi");
    page.call("agents prompt poet");
    page.call("trust --yes");
    page.call("trust --list");
    page.call("trust --revoke");
    page.call("trust --revoke");
    page.heading("A damaged record");
    let record = page.user.config().join("subtend");
    let files = std::fs::read_dir(&record).expect("the user's directory").flatten();
    for file in files.filter(|file| file.path().extension().is_none_or(|end| end != "yaml")) {
        if file.path().is_file() {
            std::fs::write(file.path(), "odd").expect("damage the file");
        }
    }
    page.call("trust --yes");
    page.call("run --model offline --store memory --quiet hi");
    page.check("errors_trust");
}

#[test]
fn errors_of_tokens_match_their_snapshot() {
    let mut page = Page::new();
    for line in [
        "token list",
        "token create ''",
        "token create phone",
        "token create phone",
        "token create phone --scope all",
        "token revoke tablet",
        "token revoke phone",
    ] {
        page.call(line);
    }
    std::fs::write(page.user.data().join("host/tokens.json"), "odd").expect("damage the file");
    page.call("token list");
    page.check("errors_tokens");
}

#[test]
fn errors_of_workers_match_their_snapshot() {
    let mut page = Page::new();
    let at = "worker --host http://127.0.0.1:9";
    page.call(&format!("{at} --tool 'build=true'"));
    page.variable("SUBTEND_WORKER_TOKEN", "secret");
    for line in [
        "worker --host agents --tool 'build=true'",
        "worker --host ftp://agents --tool 'build=true'",
        "token create one --tool pay",
        "token create one --scope work --tool pay,seek",
        "worker --host http://127.0.0.1:9 --tool 'build=true' --env GONE",
        "worker --host http://127.0.0.1:9 --tool 'build=true' --env SUBTEND_WORKER_TOKEN",
        &format!("{at} --tool build"),
        &format!("{at} --tool 'build=true' --tool 'build=false'"),
        &format!("{at} --tool 'build=true' --token-file gone"),
        &format!("{at} --tool 'build=true' --slots 0"),
    ] {
        page.call(line);
    }
    page.heading("Declarations of the user");
    let file = page.user.config().join("subtend/subtend.yaml");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    for declared in ["build: {}", "build: {description: Builds., action: fs.read}", "read: {description: Reads.}"] {
        std::fs::write(&file, format!("remote_tools: {{{declared}}}\n")).expect("written");
        page.call("run --model offline --store memory --quiet hi");
    }
    page.check("errors_workers");
}
