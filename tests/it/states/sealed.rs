//! The content of sealed states.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::*;

/// Returns `true` if a client can read a text in the state that it keeps.
async fn is_readable(store: Arc<dyn Store>, text: &str) -> bool {
    let server = Server::new().gives("details", json!({ "notes": text })).echoes("deploy");
    let service = service([keeps_notes()], store, &server);
    let state = release().state(&service).await;
    let mut readable = state.clone().into_bytes();
    for part in state.split('.') {
        readable.extend(URL_SAFE_NO_PAD.decode(part).unwrap_or_default());
    }
    // The state contains the text, since the run uses it later.
    let result = release().again(state).result(&service).await;
    assert!(format!("{result:?}").contains(text), "{result:?}");
    readable.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test(start_paused = true)]
async fn client_cannot_read_outputs_in_a_sealed_state() {
    assert!(!is_readable(Arc::new(sealed()), "s3cret notes").await);
    assert!(is_readable(Arc::new(signed()), "s3cret notes").await);
}

#[tokio::test(start_paused = true)]
async fn layer_without_a_store_encrypts_states() {
    let server = Server::new().gives("details", json!({ "notes": "s3cret" })).echoes("deploy");
    let layer = CompositeLayer::new([keeps_notes()]).unwrap();
    let state = release().state(&layer.clone().layer(server.clone())).await;
    assert!(state.starts_with("es1."), "{state}");
    release().again(state).result(&layer.layer(server)).await;
}
