//! Components in OCI registries: `weir plugin push` and `install`, with a real registry, artifacts of other tools,
//! and hostile registries.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::registry::{REGISTRY_PASSWORD, REGISTRY_USER, Registry};
use tests::upstream::{Reply, Request};
use tests::{Client, Gate, Upstream, chat, guests};
use weir_sandbox::Digest;

use crate::cli::{Served, run, text, weir};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const WASM: &str = "application/wasm";

/// A folder with `plugin.wasm`.
fn desk(component: &[u8]) -> TempDir {
    let desk = tempfile::tempdir().expect("a folder");
    put(desk.path(), "plugin.wasm", component);
    desk
}

fn put(folder: &Path, name: &str, content: &[u8]) {
    fs::write(folder.join(name), content).expect("the folder can be written");
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// Returns the errors of a command that must fail.
fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    text(&output.stderr)
}

fn push(folder: &Path, to: &str, more: &[&str]) -> Output {
    run(
        folder,
        &[&["plugin", "push", "plugin.wasm", to], more].concat(),
    )
}

fn install(served: &Served, from: &str, more: &[&str]) -> Output {
    let url = served.url();
    let install = [
        "plugin", "install", from, "--slot", "greeter", "--url", &url,
    ];
    run(served.folder(), &[&install, more].concat())
}

/// Returns the errors of a pull, which must not reach a gateway.
fn refused(folder: &Path, from: &str) -> String {
    complaint(&run(
        folder,
        &["plugin", "install", from, "--slot", "greeter"],
    ))
}

/// A gateway whose model `greeter` uses that slot, which is empty.
fn served(more: &str) -> Served {
    Served::configured(&format!(
        "[providers.greeter]\nadapter = \"greeter\"\nbase_url = \"http://127.0.0.1:1\"\n\
         [models.greeter]\nname = \"Greeter\"\ncontext_window = 32000\nmax_output_tokens = 4096\n\
         default_output_tokens = 1024\nprice = {{ input = 1.0, output = 2.0 }}\n\
         upstreams = [{{ provider = \"greeter\" }}]\n{more}"
    ))
}

async fn greeting(served: &Served) -> String {
    let body = chat("greeter", "hello");
    served.client().post("/chat", &body).await.content()
}

/// Gives the folder's user credentials for a registry.
fn log_in(home: &Path, config: &Value) {
    fs::create_dir_all(home.join(".docker")).expect("the folder can be written");
    put(home, ".docker/config.json", config.to_string().as_bytes());
}

fn password_of(registry: &str) -> Value {
    let auth = BASE64.encode(format!("{REGISTRY_USER}:{REGISTRY_PASSWORD}"));
    json!({ "auths": { registry: { "auth": auth } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pushed_is_installed_and_serves_by_tag_and_by_digest() {
    let registry = Registry::start();
    let desk = desk(&guests::answering("bb"));
    let to = registry.reference("acme/greeter:1.0.0");
    let pushed = push(desk.path(), &to, &[]);
    let by_digest = succeeded(&pushed).trim().to_owned();
    assert!(
        by_digest.starts_with(&format!("{to}@sha256:")),
        "{by_digest}"
    );
    assert!(text(&pushed.stderr).contains("no signature"), "{pushed:?}");
    // A second push returns the same digest.
    assert_eq!(succeeded(&push(desk.path(), &to, &[])).trim(), by_digest);

    let served = served("");
    let installed = install(&served, &to, &["--activate"]);
    let digest = Digest::of(&guests::answering("bb")).to_string();
    assert!(succeeded(&installed).contains(&digest), "{installed:?}");
    assert!(
        text(&installed.stderr).contains(&by_digest),
        "{installed:?}"
    );
    assert_eq!(greeting(&served).await, "bb");

    // The tag moves; a pinned digest does not.
    put(desk.path(), "plugin.wasm", &guests::answering("cc"));
    let moved = succeeded(&push(desk.path(), &to, &[])).trim().to_owned();
    assert_ne!(moved, by_digest);
    succeeded(&install(&served, &to, &["--activate"]));
    assert_eq!(greeting(&served).await, "cc");
    let without_tag = by_digest.replace(":1.0.0@", "@");
    for pinned in [&by_digest, &without_tag] {
        succeeded(&install(&served, pinned, &["--activate"]));
        assert_eq!(greeting(&served).await, "bb");
    }
    served.stop();
}

#[tokio::test]
async fn what_is_pushed_is_what_other_tools_read() {
    let registry = Registry::start();
    let component = guests::bundled("openai");
    let desk = desk(&component);
    succeeded(&push(desk.path(), &registry.reference("openai:1"), &[]));
    let get = async |path: &str| {
        let client = Client::new(registry.address()).with_header("accept", MANIFEST);
        client.get(path).await
    };
    let manifest = get("/v2/openai/manifests/1").await;
    assert_eq!(manifest.headers["content-type"], MANIFEST);
    let manifest = manifest.json();
    let layer = format!("sha256:{}", Digest::of(&component));
    assert_eq!(manifest["schemaVersion"], 2);
    assert_eq!(manifest["mediaType"], MANIFEST);
    assert_eq!(manifest["config"]["mediaType"], CONFIG);
    assert_eq!(
        manifest["layers"],
        json!([{ "mediaType": WASM, "digest": layer, "size": component.len() }])
    );
    let annotations = &manifest["annotations"];
    assert_eq!(annotations["org.opencontainers.image.title"], "openai-chat");
    assert_eq!(
        annotations["org.opencontainers.image.version"],
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(annotations["dev.weir.signature"], Value::Null);

    let config = manifest["config"]["digest"].as_str().expect("a digest");
    let config = get(&format!("/v2/openai/blobs/{config}")).await.json();
    // Fields that `oci-wasm` requires, with the types that it requires.
    assert_eq!(config["created"], "1970-01-01T00:00:00Z");
    assert_eq!(config["architecture"], "wasm");
    assert_eq!(config["os"], "wasip2");
    assert_eq!(config["layerDigests"], json!([layer]));
    let outside = &config["component"];
    assert_eq!(outside["target"], "weir:plugin/provider@0.2.3");
    let exports = outside["exports"].as_array().expect("a list");
    assert!(
        exports.contains(&json!("weir:plugin/adapter@0.2.3")),
        "{exports:?}"
    );
    let imports = outside["imports"].as_array().expect("a list");
    assert!(
        imports.contains(&json!("weir:plugin/chat@0.2.3")),
        "{imports:?}"
    );
    // Not the imports of its parts.
    assert!(
        imports
            .iter()
            .all(|import| import.as_str().is_some_and(|name| name.contains(':'))),
        "{imports:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_asks_for_it_gets_the_credentials_that_docker_keeps() {
    let registry = Registry::with_password();
    let address = registry.address().to_string();
    let desk = desk(&guests::answering("bb"));
    let home = desk.path();
    let to = registry.reference("greeter:1");
    let config = home.join(".docker/config.json").display().to_string();
    let said = complaint(&push(home, &to, &[]));
    let expected = format!("no credentials for {address} in {config}");
    assert!(said.contains(&expected), "{said}");

    log_in(
        home,
        &json!({ "auths": { &address: { "username": REGISTRY_USER, "password": "wrong" } } }),
    );
    let said = complaint(&push(home, &to, &[]));
    assert!(
        said.contains(&format!("from {REGISTRY_USER}, by {config}")),
        "{said}"
    );
    assert!(said.contains("401"), "{said}");

    log_in(home, &password_of(&format!("https://{address}")));
    let pushed = push(home, &to, &[]);
    succeeded(&pushed);
    assert!(!format!("{pushed:?}").contains(REGISTRY_PASSWORD));

    // A credential helper's, and Podman's file.
    let helper = home.join("bin/docker-credential-vault");
    fs::create_dir(home.join("bin")).expect("the folder can be written");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = get ] && [ \"$(cat)\" = {address} ] || {{ echo credentials not found in native keychain; exit 1; }}\n\
         echo '{{\"ServerURL\":\"\",\"Username\":\"{REGISTRY_USER}\",\"Secret\":\"{REGISTRY_PASSWORD}\"}}'\n"
    );
    fs::write(&helper, script).expect("the folder can be written");
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let path = std::env::var("PATH").expect("a path");
    let with_helper = |config: Value| {
        log_in(home, &config);
        let mut command = weir(home);
        command.env("PATH", format!("{}:{path}", home.join("bin").display()));
        let output = command
            .args(["plugin", "push", "plugin.wasm", &to])
            .output();
        output.expect("weir runs")
    };
    succeeded(&with_helper(
        json!({ "credHelpers": { &address: "vault" } }),
    ));
    succeeded(&with_helper(json!({ "credsStore": "vault" })));
    let said = complaint(&with_helper(
        json!({ "credHelpers": { &address: "absent" } }),
    ));
    assert!(
        said.contains("docker-credential-absent: which cannot be started"),
        "{said}"
    );

    put(
        home,
        "auth.json",
        password_of(&address).to_string().as_bytes(),
    );
    let mut command = weir(home);
    command.env("REGISTRY_AUTH_FILE", home.join("auth.json"));
    let pushed = command
        .args(["plugin", "push", "plugin.wasm", &to])
        .output();
    succeeded(&pushed.expect("weir runs"));

    let served = served("");
    log_in(served.folder(), &password_of(&address));
    succeeded(&install(&served, &to, &["--activate"]));
    assert_eq!(greeting(&served).await, "bb");
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publishers_signature_goes_along_and_holds_for_what_it_was_made_for() {
    let registry = Registry::start();
    let desk = desk(&guests::answering("bb"));
    let folder = desk.path();
    let key = succeeded(&run(folder, &["plugin", "keygen", "acme.pem"]));
    let served = served(&format!(
        "[plugins]\nallow_unsigned = false\n[plugins.publishers.acme]\nkeys = [{:?}]\nslots = [\"greeter\"]\n",
        key.trim()
    ));
    let (unsigned, signed) = (
        registry.reference("unsigned:1"),
        registry.reference("signed:1"),
    );
    succeeded(&push(folder, &unsigned, &[]));
    let said = complaint(&install(&served, &unsigned, &["--activate"]));
    assert!(said.contains("PLUGIN_UNSIGNED"), "{said}");

    let with_key = ["--key", "acme.pem", "--slot", "greeter"];
    let pushed = push(folder, &signed, &with_key);
    let by_digest = succeeded(&pushed);
    assert!(
        text(&pushed.stderr).contains("for the slot greeter"),
        "{pushed:?}"
    );
    assert!(!folder.join("plugin.wasm.sig").exists());
    let installed = succeeded(&install(&served, &signed, &["--activate"]));
    assert!(installed.contains("signed by acme"), "{installed}");
    assert_eq!(greeting(&served).await, "bb");

    // A signature file beside it has the same effect.
    succeeded(&run(
        folder,
        &[&["plugin", "sign", "plugin.wasm"][..], &with_key[..]].concat(),
    ));
    assert_eq!(succeeded(&push(folder, &signed, &[])), by_digest);

    // A tag that is a version is the signed one: guests' is 0.1.0.
    let (right, wrong) = (
        registry.reference("signed:v0.1.0"),
        registry.reference("signed:0.2.0"),
    );
    succeeded(&push(folder, &right, &[]));
    succeeded(&install(&served, &right, &[]));
    let said = complaint(&push(folder, &wrong, &[]));
    assert!(
        said.contains("the tag 0.2.0 names another version than the signature, which is for 0.1.0"),
        "{said}"
    );
    let relabelled = Upstream::start().await;
    let component = guests::answering("bb");
    let mut manifest = manifest_of(&component);
    let line = text(&fs::read(folder.join("plugin.wasm.sig")).expect("it is there"));
    manifest["annotations"] = json!({ "dev.weir.signature": line.trim() });
    has(&relabelled, &manifest, &component);
    let said = refused(folder, &at(&relabelled).replace("/x:1", "/x:0.2.0"));
    assert!(
        said.contains("the tag 0.2.0 names another version"),
        "{said}"
    );

    // The existing signature does not fit: another file needs another signature.
    put(folder, "plugin.wasm", &guests::answering("cc"));
    let said = complaint(&push(folder, &signed, &[]));
    assert!(
        said.contains("the signature is not for plugin.wasm"),
        "{said}"
    );

    // Write access to the registry vouches for nothing.
    let line = text(&fs::read(folder.join("plugin.wasm.sig")).expect("it is there"));
    let other = guests::answering("cc");
    for (annotation, component, refusal) in [
        (line.trim().to_owned(), &other, "PLUGIN_SIGNATURE_INVALID"),
        (
            line.trim().replace("0.1.0", "9.1.0"),
            &guests::answering("bb"),
            "PLUGIN_SIGNATURE_INVALID",
        ),
        (
            "{}".to_owned(),
            &other,
            "its annotation dev.weir.signature is not a signature",
        ),
    ] {
        let tampered = Upstream::start().await;
        let mut manifest = manifest_of(component);
        manifest["annotations"] = json!({ "dev.weir.signature": annotation });
        has(&tampered, &manifest, component);
        let said = complaint(&install(&served, &at(&tampered), &["--activate"]));
        assert!(said.contains(refusal), "{refusal}: {said}");
        assert_eq!(greeting(&served).await, "bb");
    }
    served.stop();
}

/// The manifest that `oci-wasm` writes for a component, which `wkg` and wasmtime's tools push.
fn manifest_of(component: &[u8]) -> Value {
    let layer = format!("sha256:{}", Digest::of(component));
    let config = json!({
        "created": "2026-05-04T03:02:01.123456789Z",
        "author": null,
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [layer],
        "component": { "exports": [], "imports": [], "target": null },
    });
    let config = config.to_string();
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {
            "mediaType": CONFIG,
            "digest": format!("sha256:{}", Digest::of(config.as_bytes())),
            "size": config.len(),
        },
        "layers": [{ "mediaType": WASM, "digest": layer, "size": component.len() }],
    })
}

fn at(registry: &Upstream) -> String {
    format!("oci://{}/x:1", registry.address())
}

/// Makes a scripted registry return this manifest and this blob for every request.
fn has(registry: &Upstream, manifest: &Value, blob: &[u8]) {
    let (manifest, blob) = (manifest.to_string(), blob.to_vec());
    registry
        .always_by(move |request| answer(request, &manifest, Reply::new(200).body(blob.clone())));
}

fn answer(request: &Request, manifest: &str, blob: Reply) -> Reply {
    match request.path.contains("/manifests/") {
        true => Reply::new(200)
            .header("content-type", MANIFEST)
            .body(manifest.to_owned()),
        false => blob,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_other_tools_have_pushed_is_installed() {
    let served = served("");
    for (letters, config) in [
        ("bb", CONFIG),
        // `oras push` without a configuration.
        ("cc", "application/vnd.oci.empty.v1+json"),
    ] {
        let registry = Upstream::start().await;
        let component = guests::answering(letters);
        let mut manifest = manifest_of(&component);
        manifest["config"]["mediaType"] = config.into();
        has(&registry, &manifest, &component);
        succeeded(&install(&served, &at(&registry), &["--activate"]));
        assert_eq!(greeting(&served).await, letters);
        let asked = registry.requests();
        let paths: Vec<_> = asked.iter().map(|request| &*request.path).collect();
        let blob = format!("/v2/x/blobs/sha256:{}", Digest::of(&component));
        assert_eq!(paths, ["/v2/x/manifests/1", &blob]);
        assert!(
            asked[0]
                .header("accept")
                .is_some_and(|types| types.contains(MANIFEST))
        );
    }
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_component_is_told_so() {
    let component = guests::answering("bb");
    let good = manifest_of(&component);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut manifest = good.clone();
        change(&mut manifest);
        manifest
    };
    let image = "application/vnd.oci.image.layer.v1.tar+gzip";
    let index = "application/vnd.oci.image.index.v1+json";
    let folder = desk(&component);
    for (manifest, blob, expected) in [
        (
            changed(&|manifest| manifest["layers"][0]["mediaType"] = image.into()),
            &component[..],
            "not a Wasm component: the media types of its layers are application/vnd.oci.image.layer.v1.tar+gzip, and of its configuration application/vnd.wasm.config.v0+json",
        ),
        (
            json!({ "schemaVersion": 2, "mediaType": index, "manifests": [] }),
            &component,
            "not a Wasm component: its media type is application/vnd.oci.image.index.v1+json",
        ),
        (
            changed(&|manifest| {
                let layer = manifest["layers"][0].clone();
                manifest["layers"]
                    .as_array_mut()
                    .expect("a list")
                    .push(layer);
            }),
            &component,
            "has 2 layers",
        ),
        (
            changed(&|manifest| manifest["layers"][0]["size"] = (1_u64 << 40).into()),
            &component,
            "the component has 1099511627776 bytes; a component has at most 33554432",
        ),
        (
            changed(&|manifest| manifest["layers"][0]["digest"] = "md5:12".into()),
            &component,
            "is not a digest",
        ),
        (json!("none"), &component, "manifest cannot be read"),
        (
            good.clone(),
            b"other bytes",
            "the registry's component has another digest",
        ),
    ] {
        let registry = Upstream::start().await;
        has(&registry, &manifest, blob);
        let said = refused(folder.path(), &at(&registry));
        assert!(said.contains(expected), "{expected}: {said}");
        assert!(said.contains(&at(&registry)), "{said}");
    }

    let registry = Upstream::start().await;
    let other = format!("{}@sha256:{}", at(&registry), Digest::of(b"another"));
    has(&registry, &good, &component);
    let said = refused(folder.path(), &other);
    assert!(
        said.contains("the registry's manifest has another digest"),
        "{said}"
    );
    let nowhere = Registry::start().reference("nothing:1");
    let said = refused(folder.path(), &nowhere);
    assert!(said.contains("cannot be reached"), "{said}");
    let real = Registry::start();
    let said = refused(folder.path(), &real.reference("nothing:1"));
    assert!(
        said.contains("no such artifact: MANIFEST_UNKNOWN"),
        "{said}"
    );
    let said = refused(folder.path(), "oci://127.0.0.1/x");
    assert!(said.contains("neither a tag nor a digest"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_never_ends_is_cut_off() {
    let component = guests::answering("bb");
    let manifest = manifest_of(&component).to_string();
    let folder = desk(&component);
    let gate = Gate::new();
    let endless = |bytes: usize| {
        let piece = vec![b' '; bytes];
        Reply::new(200)
            .body(piece)
            .chunked()
            .gate_before_piece(1, &gate)
    };
    let registry = Upstream::start().await;
    let more = endless(component.len() + 1);
    registry.always_by(move |request| answer(request, &manifest, more.clone()));
    let said = refused(folder.path(), &at(&registry));
    assert!(
        said.contains(&format!("sends more than {} bytes", component.len())),
        "{said}"
    );

    let registry = Upstream::start().await;
    registry.always(endless((4 << 20) + 1));
    let said = refused(folder.path(), &at(&registry));
    assert!(said.contains("its manifest"), "{said}");
    assert!(said.contains("sends more than 4194304 bytes"), "{said}");

    let registry = Upstream::start().await;
    registry.always(Reply::redirect(307, "/v2/x/manifests/1"));
    let said = refused(folder.path(), &at(&registry));
    assert!(said.contains("redirects more than 5 times"), "{said}");
    assert_eq!(registry.count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_credential_goes_where_a_registry_leads() {
    let (registry, elsewhere) = (Upstream::start().await, Upstream::start().await);
    let component = guests::answering("bb");
    let served = served("");
    log_in(
        served.folder(),
        &password_of(&registry.address().to_string()),
    );
    let manifest = manifest_of(&component).to_string();
    let to = format!("{}/blob?signature=a-secret", elsewhere.base_url());
    registry.always_by(move |request| match request.header("authorization") {
        None => Reply::new(401).header("www-authenticate", "Basic realm=r"),
        Some(_) => answer(request, &manifest, Reply::redirect(307, &to)),
    });

    elsewhere.always(Reply::new(401).header("www-authenticate", "Basic realm=r"));
    let said = complaint(&install(&served, &at(&registry), &[]));
    assert!(
        said.contains("which asks for credentials: it gets none"),
        "{said}"
    );
    assert!(!said.contains("a-secret"), "{said}");
    elsewhere.always(Reply::new(200).body(component));
    succeeded(&install(&served, &at(&registry), &["--activate"]));
    assert_eq!(greeting(&served).await, "bb");
    assert_eq!(elsewhere.count(), 2);
    for request in elsewhere.requests() {
        assert_eq!(request.header("authorization"), None);
    }

    for (location, expected) in [
        ("http://blobs.example/x", "which has no TLS"),
        ("ftp://blobs.example/x", "whose scheme is ftp"),
        ("file:///etc/passwd", "whose scheme is file"),
    ] {
        registry.always(Reply::redirect(307, location));
        let said = complaint(&install(&served, &at(&registry), &[]));
        assert!(said.contains(expected), "{location}: {said}");
    }
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registrys_tokens_are_asked_for_where_that_is_safe() {
    let (registry, issuer) = (Upstream::start().await, Upstream::start().await);
    let address = registry.address().to_string();
    let component = guests::answering("bb");
    let served = served("");
    let manifest = manifest_of(&component).to_string();
    let challenge = format!(
        "Bearer realm=\"{}/token\",service=\"the registry\",scope=\"repository:all:push\"",
        issuer.base_url()
    );
    registry.always_by(move |request| match request.header("authorization") {
        Some("Bearer good") => answer(request, &manifest, Reply::new(200).body(component.clone())),
        _ => Reply::new(401).header("www-authenticate", &challenge),
    });
    let good = Reply::json(200, &json!({ "token": "good" }));
    let scope = "service=the+registry&scope=repository%3Ax%3Apull";

    // Without credentials, with a password, and with Docker's stored token of some clouds in its place.
    issuer.will(good.clone());
    succeeded(&install(&served, &at(&registry), &["--activate"]));
    assert_eq!(greeting(&served).await, "bb");
    let asked = issuer.next_request().await;
    assert_eq!(
        (&*asked.method, &*asked.path),
        ("GET", &*format!("/token?{scope}"))
    );
    assert_eq!(asked.header("authorization"), None);

    log_in(served.folder(), &password_of(&address));
    issuer.will(good);
    succeeded(&install(&served, &at(&registry), &[]));
    let asked = issuer.next_request().await;
    let expected = BASE64.encode(format!("{REGISTRY_USER}:{REGISTRY_PASSWORD}"));
    assert_eq!(
        asked.header("authorization"),
        Some(&*format!("Basic {expected}"))
    );

    log_in(
        served.folder(),
        &json!({ "auths": { &address: { "identitytoken": "an+identity" } } }),
    );
    issuer.will(Reply::json(200, &json!({ "access_token": "good" })));
    succeeded(&install(&served, &at(&registry), &[]));
    let asked = issuer.next_request().await;
    assert_eq!((&*asked.method, &*asked.path), ("POST", "/token"));
    let form =
        format!("{scope}&client_id=weir&grant_type=refresh_token&refresh_token=an%2Bidentity");
    assert_eq!(text(&asked.body), form);

    // A refused token is not requested again and again.
    issuer.always(Reply::json(200, &json!({ "token": "bad" })));
    let said = complaint(&install(&served, &at(&registry), &[]));
    assert!(
        said.contains("refuses, with 401") && said.contains("identity token of"),
        "{said}"
    );
    assert_eq!(issuer.count(), 4);
    issuer.always(Reply::json(403, &json!({ "details": "not you" })));
    let said = complaint(&install(&served, &at(&registry), &[]));
    assert!(said.contains("403 Forbidden: not you"), "{said}");

    let asked = issuer.count();
    for (challenge, expected) in [
        (
            "Bearer realm=\"ftp://issuer.example/\"",
            "whose scheme is ftp",
        ),
        (
            "Bearer realm=\"file:///etc/passwd\"",
            "whose scheme is file",
        ),
        (
            "Bearer realm=\"http://issuer.example/\"",
            "which has no TLS",
        ),
        (
            "Bearer realm=\"https://a:b@issuer.example/\"",
            "holds credentials",
        ),
        ("Bearer realm=\"nowhere\"", "its issuer is nowhere"),
        ("Negotiate", "offers neither Bearer nor Basic"),
    ] {
        registry.always(Reply::new(401).header("www-authenticate", challenge));
        let said = complaint(&install(&served, &at(&registry), &[]));
        assert!(said.contains(expected), "{challenge}: {said}");
    }
    assert_eq!(issuer.count(), asked);
    served.stop();
}
