//! Converts the authentication and authorization settings of a ToolHive server to TOML.

use serde_json::{Map, Value};

use super::{import::Import, write::Table, yaml::Node};

/// Converts `incomingAuth`, the settings with which a ToolHive server authenticates clients, to the
/// tables `[auth]` and `[auth.jwt]`. Returns no tables if clients are anonymous or if the settings
/// cannot be converted.
pub(super) fn incoming(import: &mut Import<'_>, node: &Node) -> Vec<Table> {
    let known = ["type", "oidc", "oidcConfig", "oidcConfigRef", "authz", "authzConfig"];
    let Some(fields) = import.section(node, &known) else { return Vec::new() };
    let kind = import.required(&fields, "type").unwrap_or_default();
    for key in ["authz", "authzConfig"] {
        if fields.get(key).is_some_and(|node| !permits_all(&node.to_json())) {
            let message = "Cedar policies are not imported: write `[filter]`, `[[views]]` or a \
                           layer of your own";
            import.unprotected(message, &fields.key_span(key));
        }
    }
    let config = fields.get("oidcConfig");
    let inline = config.and_then(|config| config.get("inline"));
    match (kind, fields.get("oidc").or(inline)) {
        ("anonymous" | "", _) => Vec::new(),
        ("oidc", Some(node)) => {
            let url = config.and_then(|config| config.get("resourceUrl")?.as_text());
            oidc(import, node, url)
        }
        _ => {
            let message = format!(
                "`incomingAuth` of the type `{kind}` is only imported with the settings of the \
                 issuer: write `[auth]`"
            );
            import.unprotected(message, &fields.key_span("type"));
            Vec::new()
        }
    }
}

fn oidc(import: &mut Import<'_>, node: &Node, url: Option<&str>) -> Vec<Table> {
    let known = ["issuer", "audience", "resource", "jwksUrl", "scopes"];
    let Some(fields) = import.section(node, &known) else { return Vec::new() };
    let resource = url.or_else(|| import.optional(&fields, "resource"));
    let audience = import.optional(&fields, "audience");
    let mut auth = Table::from_fields("[auth]", &fields);
    // The default of ToolHive.
    auth.set_some("resource", resource.or(audience));
    let mut jwt = Table::from_fields("[auth.jwt]", &fields);
    jwt.set_some("issuer", import.required(&fields, "issuer"));
    let jwks = import.optional(&fields, "jwksUrl");
    if jwks.is_none() {
        let message = "set JWKS_URL to the `jwks_uri` of the issuer, which is not discovered";
        import.differs(message, &fields.key_span("issuer"));
    }
    jwt.set("jwks", jwks.unwrap_or("${JWKS_URL}"));
    jwt.set_some("audience", audience);
    if fields.get("scopes").is_some() {
        // ToolHive advertises the scopes, and does not require them of a token.
        let message = "`scopes` are left out: ToolHive does not require them of a token";
        import.differs(message, &fields.key_span("scopes"));
    }
    vec![auth, jwt]
}

/// Returns the HTTP headers that authenticate requests to a workload, as ToolHive calls a backend
/// server. Returns an empty map if the workload needs no headers.
pub(super) fn headers(import: &mut Import<'_>, node: &Node) -> Map<String, Value> {
    let mut headers = Map::new();
    let Some(fields) = import.section(node, &["type", "headerInjection"]) else { return headers };
    let Some(node) = fields.get("headerInjection") else { return headers };
    let known = ["headerName", "headerValue", "headerValueEnv"];
    let Some(header) = import.fields(node, &known, &[]) else { return headers };
    let Some(name) = import.required(&header, "headerName") else { return headers };
    let value = match import.optional(&header, "headerValueEnv") {
        Some(variable) => Some(format!("${{{variable}}}")),
        None => import.required(&header, "headerValue").map(str::to_owned),
    };
    import.masks.extend(header.get("headerValue").map(|value| value.span.clone()));
    headers.insert(name.to_owned(), value.unwrap_or_default().into());
    headers
}

/// Returns `true` if the Cedar policies of a server allow every request: each of them is
/// `permit(principal, action, resource);`. Returns `false` if there are no policies.
fn permits_all(authorization: &Value) -> bool {
    let policies = authorization
        .get("policies")
        .or_else(|| authorization.get("inline")?.get("policies"))
        .and_then(Value::as_array);
    policies.is_some_and(|policies| {
        let plain = |policy: &Value| -> Option<String> {
            Some(policy.as_str()?.split_whitespace().collect::<String>())
        };
        let permits =
            |policy: &Value| plain(policy).as_deref() == Some("permit(principal,action,resource);");
        !policies.is_empty() && policies.iter().all(permits)
    })
}
