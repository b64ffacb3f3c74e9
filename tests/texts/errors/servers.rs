//! Logins for MCP servers.

use serde_json::json;

use super::super::page::Page;

/// Nothing listens at the address of the servers.
#[test]
fn errors_of_logins_are_as_reviewed() {
    let mut page = Page::new();
    for line in ["mcp", "mcp login tracker", "mcp logout tracker", "mcp status"] {
        page.call(line);
    }
    page.heading("Configured servers");
    let url = "http://127.0.0.1:9/mcp";
    let servers = json!({
        "tracker": {"url": url}, "process": {"command": "sh"},
        "header": {"url": url, "headers": {"Authorization": "Bearer x"}},
    });
    let file = page.user.config().join("subtend/subtend.yaml");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    std::fs::write(&file, json!({"mcp": {"servers": servers}}).to_string()).expect("written");
    for line in [
        "mcp status",
        "mcp login trackers",
        "mcp login process",
        "mcp login header",
        "mcp login tracker",
        "mcp login tracker --port 70000",
        "mcp logout tracker",
    ] {
        page.call(line);
    }
    page.heading("A damaged file");
    let logins = file.with_file_name("mcp-logins.json");
    std::fs::write(&logins, "odd").expect("it is damaged");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        page.call("mcp status");
        std::fs::set_permissions(&logins, std::fs::Permissions::from_mode(0o600)).expect("closed");
    }
    page.call("mcp status");
    page.check("errors_logins");
}
