use std::path::Path;

use super::*;
use crate::commands::Commands;
use crate::mcp::config::ServerTransport;
use crate::mcp::login::{Login, LoginKey, LoginStore};

#[derive(Debug)]
struct NoLogins;

impl LoginStore for NoLogins {
    fn load(&self, _: &LoginKey) -> Result<Option<Login>, String> {
        Ok(None)
    }

    fn save(&self, _: &LoginKey, _: Option<&Login>) -> Result<(), String> {
        Ok(())
    }

    fn lock(&self, _: &LoginKey) -> Result<Box<dyn Send>, String> {
        Ok(Box::new(()))
    }
}

/// Reports become warnings. The control: another scope is named as it is.
#[test]
fn secret_named_as_a_scope_is_redacted_in_reports() {
    let url = "https://a.example/mcp?apiKey=q-123456789".to_owned();
    let config = ServerConfig {
        name: "notes".into(),
        origin: Origin::Person,
        transport: ServerTransport::Http { url, headers: BTreeMap::new() },
        timeout: None,
        in_workspace: false,
    };
    let settings = ConnectionSettings {
        workspace: Path::new("/w").to_owned(),
        elsewhere: None,
        guard: None,
        commands: Commands::default(),
        logins: Some(Arc::new(NoLogins)),
        internal_hosts: Vec::new(),
    };
    let server = LiveServer::new(config, (&Arc::new(settings), &Arc::new(KnownTools::in_memory())), &Arc::default());
    let lacking = |scope: &str| {
        server.login.scope_advice(&[scope.to_owned()]);
        server.report().lacking.unwrap_or_default()
    };
    let advice = |scope: &str| {
        format!("its login lacks the scopes {scope}: log in again with `subtend mcp login notes --scope {scope}`")
    };
    assert_eq!(lacking("q-123456789"), advice("[apiKey redacted]"));
    assert_eq!(lacking("read"), advice("read"));
}
