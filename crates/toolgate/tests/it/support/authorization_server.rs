//! An authorization server with every grant, and the MCP servers it protects, on this machine. It can also lie.
//!
//! `/mcp/NAME` is a server with one tool, `whoami`, which returns the person whose token it got. A person logs in by
//! opening the login page with `&user=NAME` added.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use url::form_urlencoded;

/// Nonce that proofs have to contain, if it is demanded.
const NONCE: &str = "nonce-of-the-server";

/// Deviations from the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Lie {
    #[default]
    None,
    /// The metadata names another issuer.
    WrongIssuer,
    /// The metadata of the MCP server names another resource.
    WrongResource,
    /// The response to a login names another issuer.
    WrongResponseIssuer,
    /// Issued tokens are for another audience, so the MCP server rejects them.
    WrongAudience,
    /// Codes are rejected as if they were replayed.
    ReplayedCode,
    /// Token requests are not answered.
    Gone,
}

/// An issued access token.
#[derive(Debug, Clone)]
struct AccessToken {
    person: String,
    /// Grant that issued it.
    grant: String,
    resource: String,
    ends: Instant,
    /// Thumbprint of the key it is bound to.
    key: Option<String>,
}

#[derive(Default)]
struct State {
    lie: Lie,
    lifetime: Option<Duration>,
    demands_nonce: bool,
    number: usize,
    /// Codes with person, challenge, resource.
    codes: HashMap<String, (String, String, String)>,
    access: HashMap<String, AccessToken>,
    /// Refresh tokens with person and resource. Each is used once.
    refresh: HashMap<String, (String, String)>,
    /// Grants of the token requests, in order.
    grants: Vec<String>,
    /// Everything that MCP servers got: server, `Authorization`, `X-Api-Key`.
    seen: Vec<(String, String, String)>,
    revoked: Vec<String>,
    delay: Duration,
}

pub(crate) struct AuthorizationServer {
    pub(crate) origin: String,
    state: Arc<Mutex<State>>,
}

struct Request {
    method: String,
    path: String,
    query: HashMap<String, String>,
    headers: HashMap<String, String>,
    body: String,
}

impl Request {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
        let mut words = first.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body = String::from_utf8(body).ok()?;
        Some(Self { method, path: path.to_owned(), query: form(query), headers, body })
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }
}

fn form(text: &str) -> HashMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

type Response = (u16, Vec<(&'static str, String)>, Json);

fn ok(body: Json) -> Response {
    (200, Vec::new(), body)
}

fn refused(error: &str) -> Response {
    (400, Vec::new(), json!({ "error": error }))
}

impl AuthorizationServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let origin = format!("http://{}", listener.local_addr().expect("it is bound"));
        let state = Arc::<Mutex<State>>::default();
        let server = Self { origin: origin.clone(), state: Arc::clone(&state) };
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (origin, state) = (origin.clone(), Arc::clone(&state));
                std::thread::spawn(move || {
                    let Some(request) = Request::read(&stream) else { return };
                    if request.path == "/token" {
                        let (lie, delay) = {
                            let state = state.lock().expect("one writes");
                            (state.lie, state.delay)
                        };
                        std::thread::sleep(delay);
                        if lie == Lie::Gone {
                            return;
                        }
                    }
                    let response = answer(&request, &origin, &mut state.lock().expect("one writes"));
                    write(&stream, &response);
                });
            }
        });
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("one writes")
    }

    /// URL of an MCP server.
    pub(crate) fn mcp(&self, name: &str) -> String {
        format!("{}/mcp/{name}", self.origin)
    }

    pub(crate) fn lie(&self, lie: Lie) {
        self.state().lie = lie;
    }

    /// Sets the lifetime of new tokens.
    pub(crate) fn set_lifetime(&self, lifetime: Duration) {
        self.state().lifetime = Some(lifetime);
    }

    /// Demands a nonce in proofs.
    pub(crate) fn demand_nonce(&self) {
        self.state().demands_nonce = true;
    }

    /// Delays the answers to token requests.
    pub(crate) fn delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Returns the grants of the token requests so far.
    pub(crate) fn grants(&self) -> Vec<String> {
        self.state().grants.clone()
    }

    /// Returns what MCP servers got: server, `Authorization`, `X-Api-Key`.
    pub(crate) fn seen(&self) -> Vec<(String, String, String)> {
        self.state().seen.clone()
    }

    /// Issues a refresh token to a person, as a login would.
    pub(crate) fn refresh_token_of(&self, person: &str, server: &str) -> String {
        let resource = self.mcp(server);
        let token = format!("refresh-of-{person}");
        self.state().refresh.insert(token.clone(), (person.to_owned(), resource));
        token
    }

    pub(crate) fn revoked(&self) -> Vec<String> {
        self.state().revoked.clone()
    }

    /// Ends the validity of all access tokens; refresh tokens stay valid unless `all`.
    pub(crate) fn expire_tokens(&self, all: bool) {
        let mut state = self.state();
        state.access.clear();
        if all {
            state.refresh.clear();
        }
    }
}

/// Response to a browser.
pub(crate) struct PageResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl PageResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Gets a page, or posts an empty form with a cookie.
pub(crate) fn browse(url: &str, post_with: Option<&str>) -> PageResponse {
    browse_with(if post_with.is_some() { "POST" } else { "GET" }, url, post_with.unwrap_or_default())
}

pub(crate) fn browse_with(method: &str, url: &str, cookie: &str) -> PageResponse {
    let rest = url.strip_prefix("http://").expect("a local URL");
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(host).expect("it listens");
    let cookie = if cookie.is_empty() { String::new() } else { format!("cookie: {cookie}\r\n") };
    let length = if method == "POST" { "content-length: 0\r\n" } else { "" };
    write!(stream, "{method} /{path} HTTP/1.1\r\nhost: {host}\r\n{cookie}{length}connection: close\r\n\r\n")
        .expect("it is sent");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    PageResponse { status, head: head.to_owned(), body: body.to_owned() }
}

fn write(mut stream: &TcpStream, (status, headers, body): &Response) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
}

fn answer(request: &Request, origin: &str, state: &mut State) -> Response {
    if let Some(name) = request.path.strip_prefix("/.well-known/oauth-protected-resource/mcp/") {
        let resource = match state.lie {
            Lie::WrongResource => format!("{origin}/elsewhere"),
            _ => format!("{origin}/mcp/{name}"),
        };
        return ok(json!({ "resource": resource, "authorization_servers": [origin] }));
    }
    if let Some(name) = request.path.strip_prefix("/mcp/") {
        return mcp(name, request, origin, state);
    }
    match request.path.as_str() {
        "/.well-known/oauth-authorization-server" | "/.well-known/openid-configuration" => {
            let issuer = if state.lie == Lie::WrongIssuer { "https://other.example.com" } else { origin };
            ok(json!({
                "issuer": issuer, "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"), "registration_endpoint": format!("{origin}/register"),
                "revocation_endpoint": format!("{origin}/revoke"), "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": true,
                "dpop_signing_alg_values_supported": ["ES256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            }))
        }
        "/register" => ok(json!({ "client_id": "us" })),
        "/authorize" => {
            state.number += 1;
            let code = format!("code-{}", state.number);
            let get = |name: &str| request.query.get(name).cloned().unwrap_or_default();
            state.codes.insert(code.clone(), (get("user"), get("code_challenge"), get("resource")));
            let issuer =
                if state.lie == Lie::WrongResponseIssuer { "https://other.example.com" } else { origin };
            let back = form_urlencoded::Serializer::new(String::new())
                .extend_pairs([("code", code.as_str()), ("state", &get("state")), ("iss", issuer)])
                .finish();
            let location = format!("{}?{back}", get("redirect_uri"));
            (302, vec![("location", location)], Json::Null)
        }
        "/token" => token(request, state),
        "/revoke" => {
            let token = form(&request.body).remove("token").unwrap_or_default();
            state.access.remove(&token);
            state.refresh.remove(&token);
            state.revoked.push(token);
            (200, Vec::new(), Json::Null)
        }
        _ => (404, Vec::new(), json!({})),
    }
}

/// Returns the thumbprint of the key of a proof, if the proof is valid for the request.
fn proof_key(
    proof: &str,
    method: &str,
    url: &str,
    token: Option<&str>,
    nonce: Option<&str>,
) -> Option<String> {
    let jwk: Jwk = decode_header(proof).ok()?.jwk?;
    let mut validation = Validation::new(Algorithm::ES256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    let claims = decode::<Json>(proof, &DecodingKey::from_jwk(&jwk).ok()?, &validation).ok()?.claims;
    let is_bound = token.is_none_or(|token| claims["ath"] == URL_SAFE_NO_PAD.encode(Sha256::digest(token)));
    let has_nonce = nonce.is_none_or(|nonce| claims["nonce"] == nonce);
    (claims["htm"] == method && claims["htu"] == url && is_bound && has_nonce)
        .then(|| serde_json::to_string(&jwk).expect("JSON"))
}

fn claim(jwt: &str, name: &str) -> Option<String> {
    let payload = URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1)?).ok()?;
    Some(serde_json::from_slice::<Json>(&payload).ok()?[name].as_str()?.to_owned())
}

fn token(request: &Request, state: &mut State) -> Response {
    let form = form(&request.body);
    let get = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    let grant = get("grant_type").rsplit(':').next().unwrap_or_default().to_owned();
    let proof = request.header("dpop");
    let url = format!("http://{}/token", request.header("host"));
    let nonce = state.demands_nonce.then_some(NONCE);
    let key = if proof.is_empty() { None } else { proof_key(proof, "POST", &url, None, None) };
    if key.is_some() && nonce.is_some() && proof_key(proof, "POST", &url, None, nonce).is_none() {
        return (400, vec![("dpop-nonce", NONCE.to_owned())], json!({ "error": "use_dpop_nonce" }));
    }
    state.grants.push(grant.clone());
    let (person, resource) = match grant.as_str() {
        "authorization_code" => {
            let Some((person, challenge, resource)) = state.codes.remove(get("code")) else {
                return refused("invalid_grant");
            };
            let verifier = URL_SAFE_NO_PAD.encode(Sha256::digest(get("code_verifier")));
            if verifier != challenge || state.lie == Lie::ReplayedCode {
                return refused("invalid_grant");
            }
            (person, resource)
        }
        "refresh_token" => match state.refresh.remove(get("refresh_token")) {
            Some(person) => person,
            None => return refused("invalid_grant"),
        },
        "client_credentials" => ("the-client".to_owned(), get("resource").to_owned()),
        // An identity assertion of this server, as the identity provider, is the person's token with another type.
        "token-exchange" if get("requested_token_type").ends_with(":id-jag") => {
            let person = claim(get("subject_token"), "sub").unwrap_or_default();
            let payload = URL_SAFE_NO_PAD.encode(json!({ "sub": person }).to_string());
            return ok(json!({
                "access_token": format!("e30.{payload}.x"), "token_type": "N_A",
                "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag" }));
        }
        "token-exchange" => match claim(get("subject_token"), "sub") {
            Some(person) => (person, get("resource").to_owned()),
            None => return refused("invalid_request"),
        },
        "jwt-bearer" => match claim(get("assertion"), "sub") {
            Some(person) => (person, get("resource").to_owned()),
            None => return refused("invalid_grant"),
        },
        _ => return refused("unsupported_grant_type"),
    };
    state.number += 1;
    let (access, refresh) =
        (format!("access-{}-token", state.number), format!("refresh-{}-token", state.number));
    // Tokens of a login are opaque, the others name their subject.
    let access = match grant.as_str() {
        "authorization_code" | "refresh_token" => access,
        _ => format!("e30.{}.{access}", URL_SAFE_NO_PAD.encode(json!({ "sub": person }).to_string())),
    };
    let lifetime = state.lifetime.unwrap_or(Duration::from_secs(3600));
    let resource =
        if state.lie == Lie::WrongAudience { "https://other.example.com".to_owned() } else { resource };
    let mut response = json!({
        "access_token": access, "token_type": if key.is_some() { "DPoP" } else { "Bearer" },
        "expires_in": lifetime.as_secs() });
    if ["authorization_code", "refresh_token"].contains(&grant.as_str()) {
        response["refresh_token"] = refresh.clone().into();
        state.refresh.insert(refresh, (person.clone(), resource.clone()));
    }
    if grant == "token-exchange" {
        response["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token".into();
    }
    state.access.insert(access, AccessToken { person, grant, resource, ends: now() + lifetime, key });
    ok(response)
}

/// The items of the server `scoped` that a person may see: its own, and the owner everything.
fn own_items<'a>(server: &str, person: &'a str) -> Vec<&'a str> {
    let person = person.rsplit([' ', '-']).next().unwrap_or_default();
    match (server, person) {
        ("scoped", "owner") => vec!["owner", "ann", "bob"],
        ("scoped", person) => vec![person],
        _ => Vec::new(),
    }
}

fn mcp(name: &str, request: &Request, origin: &str, state: &mut State) -> Response {
    let authorization = request.header("authorization").to_owned();
    let api_key = request.header("x-api-key").to_owned();
    state.seen.push((name.to_owned(), authorization.clone(), api_key.clone()));
    let url = format!("{origin}/mcp/{name}");
    let challenge = |error: &str| {
        let metadata = format!("{origin}/.well-known/oauth-protected-resource/mcp/{name}");
        let error = if error.is_empty() { String::new() } else { format!("error=\"{error}\", ") };
        let challenge = format!("DPoP {error}resource_metadata=\"{metadata}\"");
        (401, vec![("www-authenticate", challenge), ("dpop-nonce", NONCE.to_owned())], json!({}))
    };
    let (scheme, token) = authorization.split_once(' ').unwrap_or_default();
    let person = match (scheme.to_ascii_lowercase().as_str(), state.access.get(token)) {
        _ if !api_key.is_empty() => format!("key {api_key}"),
        // A static token, and one of the gateway's own callers that was forwarded.
        ("bearer", None) if token.starts_with("static-") => format!("static {token}"),
        ("bearer", None) if claim(token, "sub").is_some() => {
            format!("forwarded {}", claim(token, "sub").unwrap_or_default())
        }
        ("bearer" | "dpop", Some(access)) => {
            let is_bound = access.key.is_some();
            if access.ends <= now() || access.resource != url || is_bound != (scheme == "DPoP") {
                return challenge("invalid_token");
            }
            if is_bound {
                let proof = request.header("dpop");
                let valid = |nonce| proof_key(proof, &request.method, &url, Some(token), nonce) == access.key;
                if !valid(None) {
                    return challenge("invalid_dpop_proof");
                }
                if state.demands_nonce && !valid(Some(NONCE)) {
                    return challenge("use_dpop_nonce");
                }
            }
            format!("{} {}", access.grant, access.person)
        }
        _ => return challenge(""),
    };
    let message: Json = serde_json::from_str(&request.body).unwrap_or_default();
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "resources": {} },
            "serverInfo": { "name": name, "version": "1" } }),
        Some("tools/list") => {
            let tool = |name: &str| json!({ "name": name, "description": "Returns the person.", "inputSchema": { "type": "object" } });
            let own = own_items(name, &person).into_iter().map(|person| tool(&format!("of_{person}")));
            json!({ "tools": std::iter::once(tool("whoami")).chain(own).collect::<Vec<_>>() })
        }
        Some("resources/list") => {
            let own = own_items(name, &person).into_iter();
            let own = own.map(|person| json!({ "uri": format!("doc://{person}"), "name": person }));
            json!({ "resources": own.collect::<Vec<_>>() })
        }
        Some("resources/templates/list") => json!({ "resourceTemplates": [] }),
        Some("tools/call") => json!({ "content": [{ "type": "text", "text": person }] }),
        Some("ping") => json!({}),
        Some(_) if message["id"].is_null() => return (202, Vec::new(), Json::Null),
        Some(_) => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return ok(json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
        }
        None => return (405, Vec::new(), json!({})),
    };
    ok(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

#[expect(clippy::disallowed_methods, reason = "tokens expire in real time")]
fn now() -> Instant {
    Instant::now()
}
