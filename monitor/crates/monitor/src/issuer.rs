// SPDX-License-Identifier: BSD-3-Clause
//! Login through an OpenID issuer (OpenID Connect Core 1.0). The monitor sends the browser to the issuer,
//! which asks the person for a password or the like. The issuer sends the browser back with a code. In
//! exchange for the code the issuer tells the monitor who the person is.
//!
//! Meanwhile the browser keeps the data of the attempt (`Attempt`) in a cookie; the monitor keeps none. The
//! library (openidconnect) checks signatures, times and the issuer's keys.

use std::path::PathBuf;
use std::time::Duration;

use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreErrorResponseType, CoreGenderClaim,
    CoreJsonWebKey, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreProviderMetadata,
    CoreRevocableToken, CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AdditionalClaims, AuthorizationCode, ClientId, ClientSecret, CsrfToken, EmptyExtraTokenFields,
    EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, IdTokenFields, IssuerUrl,
    Nonce, OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
    StandardErrorResponse, StandardTokenResponse, TokenResponse, UserInfoClaims,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use ureq::tls::TlsConfig;

use crate::http::{is_url, trusted};
use crate::people::{Grant, Who, is_name};

/// The longest time that one request to the issuer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes that are read of one answer of the issuer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The section `[oidc]` of the configuration: the OpenID issuer through which people log in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The issuer's URL, such as `https://login.site/realms/hpc`.
    issuer: String,
    client_id: String,
    /// A file with the secret that belongs to `client_id`. With None the monitor is a public client of the
    /// issuer.
    pub client_secret_file: Option<PathBuf>,
    /// The URL at which browsers find the web page, such as `https://head.site/monitor`. At the issuer,
    /// `/api/oidc/back` below this URL must be registered.
    page: String,
    /// The name of the claim (a fact about the person, from the issuer) that has a person's name.
    #[serde(default = "preferred_username")]
    name: String,
    /// The name of the claim (a fact about the person, from the issuer) that has the names of the person's
    /// groups.
    #[serde(default = "groups")]
    groups: String,
    /// The scopes (kinds of claims) that are requested from the issuer besides `openid`.
    #[serde(default = "profile")]
    scopes: Vec<String>,
    /// A PEM file with the root certificates that the issuer's certificate is checked against. With None they
    /// are the certificates that browsers trust.
    pub trusted: Option<PathBuf>,
    /// The group whose members may log in. With None everybody whom the issuer knows may log in.
    only: Option<String>,
    #[serde(default)]
    role: Vec<Grant>,
}

fn preferred_username() -> String {
    "preferred_username".into()
}

fn groups() -> String {
    "groups".into()
}

fn profile() -> Vec<String> {
    vec!["profile".into()]
}

/// The claims about a person, such as groups, for which openidconnect has no field.
#[derive(Debug, Deserialize, Serialize)]
struct Others {
    #[serde(flatten)]
    all: Map<String, Value>,
}

impl AdditionalClaims for Others {}

type Fields = IdTokenFields<
    Others,
    EmptyExtraTokenFields,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm,
>;

/// The type of openidconnect's client for an issuer whose endpoints are known, with `Others` as further
/// claims.
type Client = openidconnect::Client<
    Others,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    StandardTokenResponse<Fields, CoreTokenType>,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// The data of one attempt to log in. The browser keeps it in a cookie while it is at the issuer.
pub struct Attempt {
    state: String,
    nonce: String,
    verifier: String,
}

impl Attempt {
    /// Returns the attempt as the text of a cookie: its three parts, joined by full stops. Each part is in
    /// base64 for URLs, or is empty.
    pub fn text(&self) -> String {
        format!("{}.{}.{}", self.state, self.nonce, self.verifier)
    }

    pub fn read(text: &str) -> Option<Attempt> {
        let mut words = text.splitn(3, '.').map(String::from);
        Some(Attempt { state: words.next()?, nonce: words.next()?, verifier: words.next()? })
    }

    /// Whether an answer of the issuer that carries `state` belongs to this attempt to log in.
    pub fn is_of(&self, state: &str) -> bool {
        !state.is_empty() && crate::secret::same(&self.state, state)
    }
}

impl Issuer {
    /// Checks the fields of the section `[oidc]`. An error says what is wrong with a field.
    pub fn check(&self) -> Result<(), String> {
        for (name, url) in [("issuer", &self.issuer), ("page", &self.page)] {
            is_url(url).map_err(|why| format!("oidc.{name}: {why}"))?;
            let is_here = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
            if url.starts_with("http:") && !is_here.iter().any(|here| url.starts_with(here)) {
                return Err(format!("oidc.{name}: {url:?} would cross the network in clear; use https"));
            }
        }
        Ok(())
    }

    /// Begins an attempt to log in. Returns the URL at the issuer to which the browser must go, and the data
    /// that the browser keeps until it comes back.
    pub fn begin(&self) -> Result<(String, Attempt), String> {
        let client = self.client(&self.http()?)?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let mut asked = client.authorize_url(
            CoreAuthenticationFlow::AuthorizationCode,
            CsrfToken::new_random,
            Nonce::new_random,
        );
        for scope in &self.scopes {
            asked = asked.add_scope(Scope::new(scope.clone()));
        }
        let (url, state, nonce) = asked.set_pkce_challenge(challenge).url();
        let attempt = Attempt {
            state: state.into_secret(),
            nonce: nonce.secret().clone(),
            verifier: verifier.into_secret(),
        };
        Ok((url.into(), attempt))
    }

    /// Ends an attempt to log in: shows the issuer the code with which the browser came back, and returns the
    /// person.
    pub fn end(&self, code: &str, attempt: Attempt) -> Result<Who, String> {
        let http = self.http()?;
        let client = self.client(&http)?;
        let ask = |request| carry_out(&http, request);
        let answer = client
            .exchange_code(AuthorizationCode::new(code.into()))
            .map_err(|error| refused(&error))?
            .set_pkce_verifier(PkceCodeVerifier::new(attempt.verifier))
            .request(&ask)
            .map_err(|error| refused(&error))?;
        let token = answer.id_token().ok_or("the issuer tells no identity")?;
        let nonce = Nonce::new(attempt.nonce);
        let verified = token.claims(&client.id_token_verifier(), &nonce).map_err(|error| refused(&error))?;
        let mut claims = serde_json::to_value(verified).map_err(|error| error.to_string())?;
        // Some issuers put few claims into the token, and return the others when they are asked.
        let is_complete =
            |claims: &Value| claims.get(&self.name).is_some() && claims.get(&self.groups).is_some();
        let asked = client.user_info(answer.access_token().clone(), Some(verified.subject().clone()));
        if let (false, Ok(asked)) = (is_complete(&claims), asked) {
            let more: UserInfoClaims<Others, CoreGenderClaim> =
                asked.request(&ask).map_err(|error| refused(&error))?;
            let more = serde_json::to_value(more).map_err(|error| error.to_string())?;
            for (name, value) in more.as_object().into_iter().flatten() {
                claims[name] = value.clone();
            }
        }
        self.who(&claims)
    }

    fn who(&self, claims: &Value) -> Result<Who, String> {
        let name = claims[&self.name].as_str().unwrap_or_default();
        if !is_name(name) {
            return Err(format!("the issuer's claim {:?} is {name:?}, which is no name here", self.name));
        }
        let groups: Vec<&str> = match &claims[&self.groups] {
            Value::Array(groups) => groups.iter().filter_map(Value::as_str).collect(),
            Value::String(group) => vec![group],
            _ => Vec::new(),
        };
        if let Some(only) = self.only.as_deref().filter(|only| !groups.contains(only)) {
            return Err(format!("{name} is not in the group {only}"));
        }
        Ok(Who::of(name, self.role.iter().filter(|grant| groups.contains(&grant.group.as_str()))))
    }

    fn http(&self) -> Result<ureq::Agent, String> {
        // Only the issuer's own document names other URLs, so redirects are not followed.
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(TlsConfig::builder().root_certs(trusted(self.trusted.as_deref())?).build())
            .build();
        Ok(agent.new_agent())
    }

    /// Makes the client of openidconnect. It asks the issuer for its keys each time, because they may have
    /// changed.
    fn client(&self, http: &ureq::Agent) -> Result<Client, String> {
        let url = IssuerUrl::new(self.issuer.clone()).map_err(|error| refused(&error))?;
        let ask = |request| carry_out(http, request);
        let metadata = CoreProviderMetadata::discover(&url, &ask).map_err(|error| refused(&error))?;
        let secret = self.client_secret_file.as_ref().map(|file| {
            let text =
                std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            Ok::<_, String>(ClientSecret::new(text.trim().into()))
        });
        let back = format!("{}/api/oidc/back", self.page.trim_end_matches('/'));
        let back = RedirectUrl::new(back).map_err(|error| refused(&error))?;
        let id = ClientId::new(self.client_id.clone());
        Ok(Client::from_provider_metadata(metadata, id, secret.transpose()?).set_redirect_uri(back))
    }
}

fn carry_out(http: &ureq::Agent, request: HttpRequest) -> Result<HttpResponse, ureq::Error> {
    let (parts, mut body) = http.run(request)?.into_parts();
    let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
    Ok(HttpResponse::from_parts(parts, body))
}

/// Returns an error of a request to the issuer, with the causes of the error, as one sentence.
fn refused(error: &dyn std::error::Error) -> String {
    let mut words = format!("the issuer does not answer as it should: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        words += &format!(": {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::people::Role;
    use serde_json::json;

    const SECTION: &str =
        "issuer = 'https://login.site'\nclient_id = 'monitor'\npage = 'https://head.site/monitor'\n";

    #[test]
    fn what_is_wrong_in_the_section_is_named() {
        let check = |text: &str| toml::from_str::<Issuer>(text).unwrap().check();
        assert_eq!(check(SECTION), Ok(()));
        assert_eq!(check(&SECTION.replace("https://login.site", "http://127.0.0.1:9")), Ok(()));
        assert!(check(&SECTION.replace("https://login", "http://login")).unwrap_err().contains("in clear"));
        assert!(check(&SECTION.replace("https://head.site", "head")).unwrap_err().contains("oidc.page"));
    }

    #[test]
    fn claims_give_name_and_role() {
        let roles = "only = 'hpc'\n[[role]]\ngroup = 'cfd-leads'\nrole = 'manager'\nproject = ['cfd']\n";
        let issuer: Issuer = toml::from_str(&format!("{SECTION}{roles}")).unwrap();
        let who = |claims: Value| issuer.who(&claims);
        let eva = json!({"preferred_username": "eva", "groups": ["hpc", "cfd-leads"]});
        let eva = who(eva).unwrap();
        assert_eq!((eva.role, eva.projects), (Role::Manager, vec!["cfd".to_string()]));
        assert_eq!(who(json!({"preferred_username": "bob", "groups": "hpc"})).unwrap().role, Role::User);
        for (claims, word) in [
            (json!({"preferred_username": "bob"}), "not in the group hpc"),
            (json!({"preferred_username": "../bob", "groups": ["hpc"]}), "no name here"),
            (json!({"preferred_username": ["bob"], "groups": ["hpc"]}), "no name here"),
            (json!({"groups": ["hpc"]}), "no name here"),
        ] {
            assert!(who(claims).unwrap_err().contains(word), "{word}");
        }
    }

    #[test]
    fn an_answer_belongs_to_one_attempt() {
        let (state, nonce, verifier) = ("a-b".into(), "c".into(), "d.e".into());
        let text = Attempt { state, nonce, verifier }.text();
        let attempt = Attempt::read(&text).unwrap();
        assert!(attempt.is_of("a-b") && !attempt.is_of("a-") && !attempt.is_of(""));
        assert_eq!(attempt.text(), text);
        assert!(Attempt::read("a.b").is_none() && !Attempt::read("..").unwrap().is_of(""));
    }
}
