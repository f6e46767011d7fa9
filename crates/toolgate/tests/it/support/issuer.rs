//! Token issuer on this machine: keys, metadata, logins with the authorization code flow, and a count of its requests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData as _};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use url::form_urlencoded;

/// Id and secret of the gateway as a client of the issuer.
pub(crate) const CLIENT: (&str, &str) = ("gate way", "secret: of the client");

/// The audience of its tokens.
pub(crate) const AUDIENCE: &str = "https://tools.example.com";

/// A signing key.
pub(crate) struct Signer {
    pub(crate) id: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) pair: KeyPair,
    key: EncodingKey,
}

impl Signer {
    pub(crate) fn new(id: &str, algorithm: Algorithm) -> Self {
        let (pair, key) = match algorithm {
            Algorithm::RS256 => {
                // `jsonwebtoken` wants RSA keys in PKCS#1, which is wrapped in the PKCS#8.
                let pair = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
                let der = pair.serialize_der();
                let key = EncodingKey::from_rsa_der(&der[26..]);
                (pair, key)
            }
            Algorithm::EdDSA => {
                let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
                let key = EncodingKey::from_ed_der(&pair.serialize_der());
                (pair, key)
            }
            _ => {
                let pair = KeyPair::generate().expect("a key");
                let key = EncodingKey::from_ec_der(&pair.serialize_der());
                (pair, key)
            }
        };
        Self { id: id.to_owned(), algorithm, pair, key }
    }

    /// Returns the public key as JWK.
    pub(crate) fn jwk(&self) -> Json {
        if self.algorithm == Algorithm::EdDSA {
            let public = self.pair.subject_public_key_info();
            let x = URL_SAFE_NO_PAD.encode(&public[public.len() - 32..]);
            return json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": self.id, "use": "sig" });
        }
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).expect("a key");
        jwk.common.key_id = Some(self.id.clone());
        serde_json::to_value(jwk).expect("JSON")
    }

    pub(crate) fn head(&self) -> Header {
        let mut head = Header::new(self.algorithm);
        head.kid = Some(self.id.clone());
        head
    }

    /// Signs a token with these claims.
    pub(crate) fn sign(&self, claims: &Json) -> String {
        self.sign_as(&self.head(), claims)
    }

    pub(crate) fn sign_as(&self, head: &Header, claims: &Json) -> String {
        encode(head, claims, &self.key).expect("it is signed")
    }
}

/// Returns the Unix time, shifted by some seconds.
pub(crate) fn now(more: i64) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
    i64::try_from(now.as_secs()).expect("not yet") + more
}

/// The login that the issuer accepts.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) signer: Arc<Signer>,
    /// Claims of the access token.
    pub(crate) access: Json,
    /// Replaces claims of the ID token. `null` removes one.
    pub(crate) id_claims: Json,
}

/// A running issuer.
pub(crate) struct Issuer {
    pub(crate) url: String,
    state: Arc<State>,
}

struct State {
    url: String,
    keys: Mutex<Json>,
    /// Sent instead of the normal response.
    broken: Mutex<Option<String>>,
    login: Mutex<Option<Login>>,
    /// Codes that were not exchanged, each with the query of its login.
    codes: Mutex<HashMap<String, HashMap<String, String>>>,
    request_count: AtomicUsize,
}

impl Issuer {
    pub(crate) fn start(signers: &[&Signer]) -> Self {
        Self::start_at("127.0.0.1", signers)
    }

    /// Starts an issuer with this host in its URLs: `localhost` is another site than `127.0.0.1`.
    pub(crate) fn start_at(host: &str, signers: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{host}:{}", listener.local_addr().expect("a local address").port());
        let state = Arc::new(State {
            url: url.clone(),
            keys: Mutex::default(),
            broken: Mutex::default(),
            login: Mutex::default(),
            codes: Mutex::default(),
            request_count: AtomicUsize::new(0),
        });
        let issuer = Self { url, state: Arc::clone(&state) };
        issuer.show(signers);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                state.answer(stream);
            }
        });
        issuer
    }

    /// Replaces its keys.
    pub(crate) fn show(&self, signers: &[&Signer]) {
        let keys: Vec<_> = signers.iter().map(|signer| signer.jwk()).collect();
        *self.state.keys.lock().expect("one writes") = json!({ "keys": keys });
    }

    pub(crate) fn answer_with(&self, text: Option<&str>) {
        *self.state.broken.lock().expect("one writes") = text.map(ToOwned::to_owned);
    }

    /// Accepts logins from now on, of everybody.
    pub(crate) fn accept_logins(&self, login: Login) {
        *self.state.login.lock().expect("one writes") = Some(login);
    }

    /// Sends a GET request as a browser would; returns the head of the response.
    pub(crate) fn browse(&self, path: &str) -> String {
        let host = self.url.trim_start_matches("http://").replace("localhost", "127.0.0.1");
        let mut stream = TcpStream::connect(host).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is sent");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap_or_default().to_owned()
    }

    /// Returns the number of requests.
    pub(crate) fn request_count(&self) -> usize {
        self.state.request_count.load(Ordering::SeqCst)
    }

    /// Returns valid claims.
    pub(crate) fn claims(&self, sub: &str, scope: &str) -> Json {
        json!({ "iss": self.url, "aud": AUDIENCE, "sub": sub, "scope": scope, "exp": now(300), "nbf": now(-5) })
    }
}

impl State {
    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(&stream);
        let mut first = String::new();
        let _ = reader.read_line(&mut first);
        let (mut line, mut length, mut basic) = (String::new(), 0, String::new());
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            let (name, value) = line.split_once(':').unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap_or(0),
                "authorization" => basic = value.trim().to_owned(),
                _ => {}
            }
            line.clear();
        }
        let mut sent = vec![0; length];
        let _ = reader.read_exact(&mut sent);
        self.request_count.fetch_add(1, Ordering::SeqCst);
        let target = first.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path == "/authorize" {
            let location = self.authorize(query);
            let head = format!(
                "HTTP/1.1 302 Found\r\nlocation: {location}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes());
            return;
        }
        let url = &self.url;
        let body = match path {
            "/keys" => Some(self.keys.lock().expect("one writes").clone()),
            "/.well-known/openid-configuration" => Some(json!({
                "issuer": url, "jwks_uri": format!("{url}/keys"), "authorization_response_iss_parameter_supported": true,
                "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token") })),
            "/token" => self.token(&basic, &sent),
            _ => None,
        };
        let broken = self.broken.lock().expect("one writes").clone();
        let (status, body) = match (broken, body) {
            (Some(broken), _) => ("500 Broken", broken),
            (None, Some(body)) => ("200 OK", body.to_string()),
            (None, None) => ("404 Not Found", String::new()),
        };
        let head =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
    }

    /// Accepts a login; returns the URL that the browser goes back to.
    fn authorize(&self, query: &str) -> String {
        let query: HashMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let mut codes = self.codes.lock().expect("one writes");
        let code = format!("code-{}", codes.len());
        let pairs = [("code", code.as_str()), ("state", &query["state"]), ("iss", &self.url)];
        let back = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        let location = format!("{}?{back}", query["redirect_uri"]);
        codes.insert(code, query);
        location
    }

    /// Exchanges a code, once, for the client that it was issued to.
    fn token(&self, basic: &str, sent: &[u8]) -> Option<Json> {
        let sent: HashMap<String, String> = form_urlencoded::parse(sent).into_owned().collect();
        let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let expected = STANDARD.encode(format!("{}:{}", encoded(CLIENT.0), encoded(CLIENT.1)));
        let begun = self.codes.lock().expect("one writes").remove(&sent["code"])?;
        let verifier = URL_SAFE_NO_PAD.encode(Sha256::digest(&sent["code_verifier"]));
        let is_valid = basic.trim_start_matches("Basic ") == expected
            && begun["code_challenge"] == verifier
            && begun["redirect_uri"] == sent["redirect_uri"]
            && begun["client_id"] == CLIENT.0
            && begun["scope"] == "openid email";
        let login = self.login.lock().expect("one writes").clone().filter(|_| is_valid)?;
        let mut id = json!({ "iss": self.url, "aud": CLIENT.0, "sub": login.access["sub"], "exp": now(300), "nonce": begun["nonce"] });
        for (name, value) in login.id_claims.as_object().into_iter().flatten() {
            match value {
                Json::Null => drop(id.as_object_mut().expect("claims").remove(name)),
                value => id[name] = value.clone(),
            }
        }
        let sign = |claims: &Json| login.signer.sign(claims);
        Some(json!({ "token_type": "Bearer", "access_token": sign(&login.access), "id_token": sign(&id) }))
    }
}
