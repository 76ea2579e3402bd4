//! A sandbox without a gateway.

use serde_json::Value;
use weir_dialects as dialect;
use weir_sandbox::adapter::ProviderWorld;
use weir_sandbox::adapter::bindings::adapter::{Request, Task};
use weir_sandbox::{Engine, GuestCapacity, GuestLimits, LoadError, Sandbox, World, loading};

/// A sandbox for adapters with room for this many guests.
pub fn sandbox(instances: u32) -> Sandbox<ProviderWorld> {
    sandbox_of(instances)
}

/// A sandbox for plugins of any world.
pub fn sandbox_of<W: World>(instances: u32) -> Sandbox<W> {
    let room = GuestCapacity {
        guests: instances,
        memory_bytes: 4 << 30,
    };
    let engine = Engine::start(room).expect("the engine starts");
    Sandbox::new(&engine).expect("the imports are linked")
}

/// Runs every load step on a component, within the default limits.
pub async fn load<W: World>(
    sandbox: &Sandbox<W>,
    name: &str,
    component: &[u8],
) -> Result<W::Plugin, LoadError> {
    loading::load(sandbox, None, &GuestLimits::default(), name, component).await
}

/// Returns an adapter's input for the body of a chat request.
///
/// # Panics
///
/// If the gateway would refuse the body.
pub fn request(body: &Value) -> Request {
    let call = dialect::read_own(body.to_string().as_bytes()).expect("it is sound");
    let attachments = call.attachments.iter().map(dialect::Attachment::described);
    Request {
        attachments: attachments.collect(),
        task: Task::Chat(call.request),
        client: call.client,
        attempt: 1,
        deadline_ms: 60_000,
    }
}
